#pragma once

#include "device.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::gpu {

struct ParameterArenaOptions {
  std::size_t tail_size = 0;
  UnitOptions units = {};
};
/// Convolution weights are (out, kernel, kernel, in) and linear weights (out, in), with channels
/// padded like values, but not the input channels of a group.
[[nodiscard]] ParameterArena make_parameter_arena(const std::shared_ptr<Device>& device,
                                                  const Graph& graph,
                                                  const ParameterArenaOptions& options);

/// The parameters in the type of the values: a copy if they are held in fp32 and values have 16
/// bits.
class WorkingParameters final {
 public:
  WorkingParameters(DeviceAllocator& device, const ParameterArena& arena, DataType type);
  /// Queues the update of the copy.
  void refresh(DeviceQueues& device, const ParameterArena& arena) const;
  /// As of the last refresh().
  [[nodiscard]] std::byte* of(const ParameterArena& arena, ParameterId id) const;

 private:
  DataType type_;
  DeviceArray<std::uint16_t> copy_;
};

}  // namespace lockstep::gpu
