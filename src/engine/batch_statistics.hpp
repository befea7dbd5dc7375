#pragma once

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Each batch norm's mean and variance of one program: in the block that its kernels read and write
/// (the biased variance, in training), and concatenated for callers. The engine owns the block.
class BatchStatistics final {
 public:
  BatchStatistics(const Graph& graph, std::int64_t batch_size);

  /// Values of the block.
  [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
  /// Where a statistic begins in the block, aligned and padded for every kernel.
  [[nodiscard]] std::size_t offset_of(StatisticId id) const {
    return entries_[static_cast<std::size_t>(id)].block_offset;
  }
  /// Number of values under a variance: n / (n - 1) makes it unbiased.
  void set_elements(StatisticId variance, double elements) noexcept;
  /// Copies the block to the concatenation.
  void publish(std::span<const float> block) noexcept;
  /// In Graph::statistics() order; variances unbiased; as last published.
  [[nodiscard]] std::span<const float> concatenated() const noexcept {
    return concatenated_.span();
  }
  /// Whether all statistics last published are finite. A ReLU fused into a norm turns NaN into
  /// zero, so the loss may look sound although earlier layers are not; the statistics show it.
  [[nodiscard]] bool finite() const noexcept { return finite_; }
  /// Copies a concatenation to the block, padding zero.
  void load(std::span<const float> running, std::span<float> block) const noexcept;

 private:
  struct Entry {
    std::size_t block_offset;
    std::size_t offset;
    std::size_t channels;
    float correction;  // n / (n - 1) for variances, else 1
  };
  std::vector<Entry> entries_;
  std::size_t block_size_ = 0;
  AlignedBuffer<float> concatenated_;
  bool finite_ = true;
};

/// The running statistics of an untrained network, in Graph::statistics() order.
[[nodiscard]] AlignedBuffer<float> initial_running_statistics(const Graph& graph);

}  // namespace lockstep
