#pragma once

#include "../../engine/gpu/kernels/update_kernels.hpp"
#include "../segments.hpp"
#include "device_optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::gpu {

/// The arena's tensors as the kernels need them, on the device.
class TensorTable final {
 public:
  /// `rows`: of norms, one entry per tensor each.
  TensorTable(Device& device, std::vector<Segment> segments, std::size_t arena_size,
              std::size_t rows)
      : segments_(std::move(segments)),
        blocks_(arena_size / arena_block),
        tensor_of_block_(device, blocks_),
        updates_(device, segments_.size()),
        host_updates_(device, segments_.size(), DeviceArray<TensorUpdate>::Place::host),
        norms_(device, rows * segments_.size()),
        host_norms_(device, norms_.size(), DeviceArray<double>::Place::host),
        workspace_(device, squared_norms_workspace(blocks_, segments_.size())),
        adapts_(device, segments_.size()),
        decision_(device, 1),
        host_decision_(device, 1, DeviceArray<UpdateDecision>::Place::host) {
    // A gap (zeros) belongs to the tensor before it, so that a tensor's blocks are contiguous.
    std::vector<std::uint32_t> owner(blocks_, 0);
    auto end = owner.end();
    for (std::size_t i = segments_.size(); i-- > 0;) {
      if (segments_[i].begin == segments_[i].end) continue;
      const auto begin =
          owner.begin() + static_cast<std::ptrdiff_t>(segments_[i].begin / arena_block);
      std::fill(begin, end, static_cast<std::uint32_t>(i));
      end = begin;
    }
    if (end != owner.end()) std::fill(owner.begin(), end, *end);
    device.copy_to_device(tensor_of_block_.data(), owner.data(), tensor_of_block_.bytes());
    std::vector<std::uint8_t> adapts;
    for (const Segment& segment : segments_) adapts.push_back(segment.adapts ? 1 : 0);
    device.copy_to_device(adapts_.data(), adapts.data(), adapts_.bytes());
    set_ratios(device, std::vector<double>(segments_.size(), 1.0));
    device.synchronize();
  }

  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }

  /// The update of [begin, end), both rounded up to whole blocks.
  [[nodiscard]] UpdateRange range(std::size_t begin, std::size_t end, std::span<float> parameters,
                                  std::span<const float> gradients,
                                  const UpdateOptions& options) const {
    return {.begin = std::min(round_up(begin), blocks_ * arena_block),
            .end = std::min(round_up(end), blocks_ * arena_block),
            .parameters = parameters.data(),
            .gradients = gradients.data(),
            .tensor_of_block = tensor_of_block_.data(),
            .tensors = updates_.data(),
            .gradient_scale = options.gradient_scale,
            .lr = options.lr,
            .decision = decision_of(options)};
  }

  /// Queues the decision and its copy to the host.
  void decide(DeviceQueues& device, const UpdateInputs& inputs) {
    const bool measures = inputs.clip_norm > 0 || inputs.skips_overflow;
    if (measures) queue_squares(device, {0, arena_size(), inputs.gradients.data()}, 0);
    decide_update(device.stream(),
                  {.samples = inputs.samples,
                   .all_samples = static_cast<double>(inputs.all_samples),
                   .not_finite = inputs.not_finite,
                   .squares = measures ? norms_.data() : nullptr,
                   .tensors = segments_.size(),
                   .scale = inputs.scale,
                   .clip_norm = inputs.clip_norm,
                   .skips_overflow = inputs.skips_overflow},
                  decision_.data());
    device.copy_to_host(host_decision_.data(), decision_.data(), decision_.bytes());
  }
  [[nodiscard]] const UpdateDecision& decision() const noexcept { return *host_decision_.data(); }

  /// Queues the computation of each tensor's trust ratio, from rows 0 and 1, for later updates.
  void queue_trust_ratios(DeviceQueues& device, double trust_coefficient, bool of_steps,
                          const UpdateOptions& options) {
    set_trust_ratios(device.stream(),
                     {.weight_squares = norms_.data(),
                      .move_squares = norms_.data() + segments_.size(),
                      .of_steps = of_steps,
                      .adapts = adapts_.data(),
                      .tensors = segments_.size(),
                      .trust_coefficient = trust_coefficient,
                      .gradient_scale = options.gradient_scale,
                      .decision = decision_of(options)},
                     updates_.data());
  }

  /// Queues a copy of each tensor's factor for the learning rate, `ratios` (tensors,). The last
  /// call's copy must be done.
  void set_ratios(DeviceQueues& device, std::span<const double> ratios) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      host_updates_.data()[i] = {.lr = ratios[i] * segments_[i].lr_scale,
                                 .weight_decay = segments_[i].weight_decay,
                                 .lr_scale = segments_[i].lr_scale};
    }
    device.copy_to_device(updates_.data(), host_updates_.data(), updates_.bytes());
  }

  [[nodiscard]] std::size_t arena_size() const noexcept { return blocks_ * arena_block; }

  /// A range of the arena, cut between tensors, and its values: value i of the arena is values[i].
  struct Range {
    std::size_t begin;
    std::size_t end;
    const float* values;
  };
  /// Queues the sum of squares of each tensor's values; 0 for tensors outside the range.
  void queue_squares(DeviceQueues& device, const Range& range, std::size_t row) {
    const std::size_t first = round_up(range.begin) / arena_block;
    const std::size_t end = std::min(round_up(range.end) / arena_block, blocks_);
    squared_norms(device.stream(), range.values + first * arena_block, end - first,
                  tensor_of_block_.data() + first, segments_.size(), norms(row), workspace());
  }
  [[nodiscard]] double* norms(std::size_t row) noexcept {
    assert((row + 1) * segments_.size() <= norms_.size());
    return norms_.data() + row * segments_.size();
  }
  [[nodiscard]] void* workspace() noexcept { return workspace_.data(); }
  /// The first `rows` rows of norms, (rows, tensors). Blocks; valid until the next call.
  [[nodiscard]] std::span<const double> read_norms(DeviceQueues& device, std::size_t rows) {
    const std::size_t count = rows * segments_.size();
    device.copy_to_host(host_norms_.data(), norms_.data(), count * sizeof(double));
    device.synchronize();
    return {host_norms_.data(), count};
  }

 private:
  [[nodiscard]] static constexpr std::size_t round_up(std::size_t value) noexcept {
    return (value + arena_block - 1) / arena_block * arena_block;
  }
  [[nodiscard]] const UpdateDecision* decision_of(const UpdateOptions& options) const noexcept {
    return options.as_decided ? decision_.data() : nullptr;
  }

  std::vector<Segment> segments_;
  std::size_t blocks_;
  DeviceArray<std::uint32_t> tensor_of_block_;
  DeviceArray<TensorUpdate> updates_;
  DeviceArray<TensorUpdate> host_updates_;
  DeviceArray<double> norms_;
  DeviceArray<double> host_norms_;
  DeviceArray<std::byte> workspace_;
  DeviceArray<std::uint8_t> adapts_;
  DeviceArray<UpdateDecision> decision_;
  DeviceArray<UpdateDecision> host_decision_;
};

}  // namespace lockstep::gpu
