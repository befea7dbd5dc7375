#pragma once

#include "../batch_statistics.hpp"
#include "device.hpp"
#include "kernels/inverse_deviation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace lockstep::gpu {

/// A program's batch statistics: the block on the device that kernels read and write, and its copy
/// in host memory. A second block has, at the variances' places, the inverse deviations.
class StatisticsBlock final {
 public:
  StatisticsBlock(DeviceAllocator& device, const Graph& graph, std::int64_t batch_size)
      : statistics_(graph, batch_size),
        on_device_(device, 2 * statistics_.block_size()),
        on_host_(device, on_device_.size(), DeviceArray<float>::Place::host) {
    std::ranges::fill(on_host_.span(), 0.0F);  // load() sets no padding of the second block
    for (const Node& node : graph.nodes()) {
      if (node.statistics.empty()) continue;
      variances_.push_back({.begin = statistics_.offset_of(node.statistics[1]),
                            .size = static_cast<std::size_t>(node.output[0]),
                            .eps = static_cast<float>(std::get<BatchNorm>(node.op).options.eps)});
    }
  }

  [[nodiscard]] const BatchStatistics& statistics() const noexcept { return statistics_; }
  /// On the device, (padded).
  [[nodiscard]] float* of(StatisticId id) const {
    return on_device_.data() + statistics_.offset_of(id);
  }
  [[nodiscard]] float* inverse_deviations(StatisticId variance) const {
    return of(variance) + statistics_.block_size();
  }
  /// Makes a place on the device for the number of values under a variance over all ranks' samples.
  /// Work queued before fetch() must set it.
  [[nodiscard]] double* add_elements(Device& device, StatisticId variance) {
    if (over_ranks_.empty()) {
      elements_ = DeviceArray<double>(device, variances_.size());
      elements_on_host_ =
          DeviceArray<double>(device, variances_.size(), DeviceArray<double>::Place::host);
    }
    over_ranks_.push_back(variance);
    return elements_.data() + over_ranks_.size() - 1;
  }
  /// That place; null if there is none.
  [[nodiscard]] const double* elements(StatisticId variance) const {
    const auto place = std::ranges::find(over_ranks_, variance);
    return place == over_ranks_.end() ? nullptr : elements_.data() + (place - over_ranks_.begin());
  }
  /// Queues the copy to the host; call publish() when it is done.
  void fetch(DeviceQueues& device) {
    device.copy_to_host(on_host_.data(), on_device_.data(),
                        statistics_.block_size() * sizeof(float));
    if (over_ranks_.empty()) return;
    device.copy_to_host(elements_on_host_.data(), elements_.data(),
                        over_ranks_.size() * sizeof(double));
  }
  void publish() {
    for (std::size_t i = 0; i < over_ranks_.size(); ++i) {
      statistics_.set_elements(over_ranks_[i], elements_on_host_.data()[i]);
    }
    statistics_.publish(on_host_.span().first(statistics_.block_size()));
  }
  /// Queues the copy of a concatenation to the device.
  void load(DeviceQueues& device, std::span<const float> running) {
    const std::size_t size = statistics_.block_size();
    statistics_.load(running, on_host_.span().first(size));
    for (const Variances& norm : variances_) {
      const float* const from = on_host_.data() + norm.begin;
      float* const to = on_host_.data() + size + norm.begin;
      for (std::size_t c = 0; c < norm.size; ++c) to[c] = inverse_deviation(from[c], norm.eps);
    }
    device.copy_to_device(on_device_.data(), on_host_.data(), on_device_.bytes());
  }

 private:
  struct Variances {
    std::size_t begin;  ///< in the block
    std::size_t size;
    float eps;
  };

  BatchStatistics statistics_;
  std::vector<Variances> variances_;
  DeviceArray<float> on_device_;  ///< (2, block)
  DeviceArray<float> on_host_;
  std::vector<StatisticId> over_ranks_;  ///< variances, in the order of elements_
  DeviceArray<double> elements_;
  DeviceArray<double> elements_on_host_;
};

}  // namespace lockstep::gpu
