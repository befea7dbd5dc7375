#pragma once

#include "device.hpp"
#include "kernels/kernels.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/engine/unit_exchange.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::gpu {

/// Combines one batch norm's results over all ranks: replaces those for this rank's samples by
/// those for all ranks' samples. The host waits for the device, and so for exchanges queued before,
/// and sums in fp64.
class RankSums final {
 public:
  /// `exchange` may be null.
  RankSums(Device& device, UnitExchange* exchange, SumOverRanks sum, std::int64_t rows,
           std::int64_t padded);

  /// In place; one sum of 2 C + 1 values.
  void combine_statistics(const NormStatistics& statistics);
  /// Two sums over samples (padded), in place; one sum of 2 C values.
  void combine_gradients(float* weight, float* bias);
  /// Values per channel on all ranks, as of the last combine_statistics().
  [[nodiscard]] double elements() const noexcept { return elements_; }

 private:
  void fetch(const float* first, const float* second);
  /// Row `row` of the host's values.
  void send(float* to, std::size_t row);

  Device& device_;
  UnitExchange* exchange_;
  SumOverRanks sum_;
  std::size_t padded_;
  double rows_;
  double elements_;
  DeviceArray<float> host_;   // (3, padded)
  std::vector<double> sums_;  // (2 padded + 1)
  std::unique_ptr<Event> fetched_;
};

}  // namespace lockstep::gpu
