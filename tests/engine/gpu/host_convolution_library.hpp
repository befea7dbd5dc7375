#pragma once

#include "../../../src/engine/gpu/convolution_library.hpp"
#include "host_memory.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::gpu {

class LiveObjects;
class WorkStream;

/// The convolutions that a host device has made and timed, and the algorithms that were set.
struct HostConvolutions {
  std::vector<std::pair<ConvolutionShape, ConvolutionPasses>> made;
  std::vector<ConvolutionRequest> timed;
  AlgorithmChoices taken;
};

/// Convolutions as loops in the stream of a host device.
class HostConvolutionLibrary final : public ConvolutionLibrary {
 public:
  HostConvolutionLibrary(WorkStream& stream, std::shared_ptr<HostMemory> memory,
                         std::shared_ptr<LiveObjects> live)
      : stream_(stream), memory_(std::move(memory)), live_(std::move(live)) {}
  [[nodiscard]] std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                  ConvolutionPasses passes) override;
  [[nodiscard]] std::string name() const override { return "the host, loops 1"; }
  [[nodiscard]] std::string fastest(const ConvolutionRequest& request) override;
  void set_algorithms(AlgorithmChoices choices) override { asked_.taken = std::move(choices); }
  [[nodiscard]] const HostConvolutions& asked() const noexcept { return asked_; }

 private:
  WorkStream& stream_;
  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<LiveObjects> live_;
  HostConvolutions asked_;
};

}  // namespace lockstep::gpu
