#pragma once

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/graph/graph.hpp"
#include "step.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::cpu {

/// Each batch norm's mean and variance of one program: padded and aligned for the primitives (the
/// biased variance, in training), and concatenated for callers.
class StatisticsBlock final {
 public:
  StatisticsBlock(const Graph& graph, std::int64_t batch_size);

  /// Where the primitive reads or writes a statistic.
  [[nodiscard]] float* of(StatisticId id) noexcept {
    return aligned_.data() + entries_[static_cast<std::size_t>(id)].aligned_offset;
  }
  /// In Graph::statistics() order; variances unbiased.
  [[nodiscard]] std::span<const float> concatenated() const noexcept {
    return concatenated_.span();
  }
  /// Number of values under a variance: n / (n - 1) makes it unbiased.
  void set_elements(StatisticId variance, double elements) noexcept;
  /// Copies the primitives' statistics to the concatenation.
  void publish() noexcept;
  /// Whether all statistics last published are finite. A ReLU fused into a norm turns NaN into
  /// zero, so the loss may look sound although earlier layers are not; the statistics show it.
  [[nodiscard]] bool finite() const noexcept { return finite_; }
  /// Copies a concatenation to the primitives' statistics.
  void load(std::span<const float> running) noexcept;

 private:
  struct Entry {
    std::size_t aligned_offset;
    std::size_t offset;
    std::size_t channels;
    float correction;  // n / (n - 1) for variances, else 1
  };
  std::vector<Entry> entries_;
  AlignedBuffer<float> aligned_;
  AlignedBuffer<float> concatenated_;
  bool finite_ = true;
};

/// The last step of a training forward.
class PublishStatisticsStep final : public Step {
 public:
  explicit PublishStatisticsStep(StatisticsBlock& block) : block_(block) {}
  void run() override { block_.publish(); }
  [[nodiscard]] std::string_view name() const noexcept override { return "statistics to the host"; }

 private:
  StatisticsBlock& block_;
};

/// The first step of inference.
class LoadStatisticsStep final : public Step {
 public:
  LoadStatisticsStep(StatisticsBlock& block, std::span<const float> running)
      : block_(block), running_(running) {}
  void run() override { block_.load(running_); }
  [[nodiscard]] std::string_view name() const noexcept override { return "running statistics"; }

 private:
  StatisticsBlock& block_;
  std::span<const float> running_;
};

}  // namespace lockstep::cpu
