#include "device_optimizer.hpp"

#include "../segments.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/update_rules.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep::cuda {
namespace {

constexpr std::size_t round_up(std::size_t value) noexcept {
  return (value + arena_block - 1) / arena_block * arena_block;
}

/// The arena's tensors as the kernels need them, on the device.
class TensorTable final {
 public:
  /// `most_ranges`: most ranges of one squared() call.
  TensorTable(Device& device, std::vector<Segment> segments, std::size_t arena_size,
              std::size_t most_ranges)
      : segments_(std::move(segments)),
        blocks_(arena_size / arena_block),
        tensor_of_block_(device, blocks_),
        updates_(device, segments_.size()),
        host_updates_(device, segments_.size(), DeviceArray<TensorUpdate>::Place::host),
        norms_(device, most_ranges * segments_.size()),
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
  void decide(Device& device, const UpdateInputs& inputs) {
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

  /// Queues the computation of each tensor's trust ratio for later updates.
  void queue_trust_ratios(Device& device, std::span<const float> parameters,
                          std::span<const float> gradients, double trust_coefficient,
                          const UpdateOptions& options) {
    queue_squares(device, {0, arena_size(), parameters.data()}, 0);
    queue_squares(device, {0, arena_size(), gradients.data()}, 1);
    set_trust_ratios(device.stream(),
                     {.weight_squares = norms_.data(),
                      .gradient_squares = norms_.data() + segments_.size(),
                      .adapts = adapts_.data(),
                      .tensors = segments_.size(),
                      .trust_coefficient = trust_coefficient,
                      .gradient_scale = options.gradient_scale,
                      .decision = decision_of(options)},
                     updates_.data());
  }

  /// Queues a copy of each tensor's factor for the learning rate, `ratios` (tensors,). The last
  /// call's copy must be done.
  void set_ratios(Device& device, std::span<const double> ratios) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      host_updates_.data()[i] = {.lr = ratios[i], .weight_decay = segments_[i].weight_decay};
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
  /// Sum of squares of each tensor within each range, (ranges, tensors); 0 for tensors outside the
  /// range. Blocks; valid until the next call.
  [[nodiscard]] std::span<const double> squared(Device& device, std::span<const Range> ranges) {
    const std::size_t count = ranges.size() * segments_.size();
    for (std::size_t i = 0; i < ranges.size(); ++i) queue_squares(device, ranges[i], i);
    device.copy_to_host(host_norms_.data(), norms_.data(), count * sizeof(double));
    device.synchronize();
    return {host_norms_.data(), count};
  }

 private:
  /// Queues sums of squares into row `row` of norms_.
  void queue_squares(Device& device, const Range& range, std::size_t row) {
    assert((row + 1) * segments_.size() <= norms_.size());
    const std::size_t first = round_up(range.begin) / arena_block;
    const std::size_t end = std::min(round_up(range.end) / arena_block, blocks_);
    squared_norms(device.stream(), range.values + first * arena_block, end - first,
                  tensor_of_block_.data() + first, segments_.size(),
                  norms_.data() + row * segments_.size(), workspace_.data());
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

class DeviceOptimizer : public Optimizer {
 public:
  DeviceOptimizer(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
                  std::vector<std::string> slot_names, std::size_t most_ranges = 1)
      : device_(std::move(device)),
        table_(*device_, make_segments(layout, config.weight_decay, config.decay_norm_and_bias),
               layout.size(), most_ranges),
        slot_names_(std::move(slot_names)) {
    for (std::size_t i = 0; i < slot_names_.size(); ++i) {
      slots_.emplace_back(*device_, layout.size());
      device_->clear(slots_.back().data(), slots_.back().bytes());
    }
  }

  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override {
    return slot_names_;
  }
  [[nodiscard]] std::span<float> slot(std::size_t index) noexcept override {
    return {slots_[index].data(), slots_[index].size()};
  }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return false; }
  [[nodiscard]] double squared_norm(std::span<const float> gradients) override {
    const TensorTable::Range all{0, table_.arena_size(), gradients.data()};
    const auto squared = table_.squared(*device_, {&all, 1});
    return std::accumulate(squared.begin(), squared.end(), 0.0);
  }
  [[nodiscard]] bool decide(const UpdateInputs& inputs) override {
    table_.decide(*device_, inputs);
    return true;
  }
  [[nodiscard]] UpdateOutcome outcome() const override {
    const UpdateDecision& decision = table_.decision();
    return {.made = decision.made != 0, .gradient_norm = decision.gradient_norm};
  }

 protected:
  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] TensorTable& table() noexcept { return table_; }

 private:
  std::shared_ptr<Device> device_;
  TensorTable table_;
  std::vector<std::string> slot_names_;
  std::vector<DeviceArray<float>> slots_;
};

class DeviceSgd final : public DeviceOptimizer {
 public:
  DeviceSgd(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout)
      : DeviceOptimizer(std::move(device), config, layout, {"momentum_buffer"}),
        options_{.momentum = static_cast<float>(config.momentum), .nesterov = config.nesterov} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "sgd"; }
  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    sgd_update(device().stream(), table().range(begin, end, parameters, gradients, options),
               options_, slot(0).data());
  }

 private:
  SgdUpdate options_;
};

class DeviceAdam final : public DeviceOptimizer {
 public:
  DeviceAdam(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout)
      : DeviceOptimizer(std::move(device), config, layout, {"exp_avg", "exp_avg_sq"}),
        options_{.beta1 = config.beta1,
                 .beta2 = config.beta2,
                 .eps = config.eps,
                 .correction1 = 1,
                 .correction2 = 1,
                 .decoupled_decay = config.optimizer == OptimizerKind::adamw} {}

  [[nodiscard]] std::string_view name() const noexcept override {
    return options_.decoupled_decay ? "adamw" : "adam";
  }
  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    AdamUpdate now = options_;
    now.correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(options.step));
    now.correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(options.step));
    adam_update(device().stream(), table().range(begin, end, parameters, gradients, options), now,
                slot(0).data(), slot(1).data());
  }

 private:
  AdamUpdate options_;
};

class DeviceLars final : public DeviceOptimizer {
 public:
  DeviceLars(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
             SumOverRanks sum_norms)
      : DeviceOptimizer(std::move(device), config, layout, {"momentum_buffer"},
                        most_ranges(layout)),
        momentum_(static_cast<float>(config.momentum)),
        trust_(config.trust_coefficient),
        sum_norms_(std::move(sum_norms)),
        norms_(2 * table().segments().size()),
        ratios_(table().segments().size(), 1.0) {
    ranges_.reserve(most_ranges(layout));
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "lars"; }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }
  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    if (!sum_norms_) {
      table().queue_trust_ratios(device(), parameters, gradients, trust_, options);
    } else if (std::exchange(measured_, false)) {
      queue_ratios(options.gradient_scale);
    }
    lars_update(device().stream(), table().range(begin, end, parameters, gradients, options),
                momentum_, slot(0).data());
  }

  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients) override {
    take_norms(ranges, gradients);
    sum_norms_(norms_);
  }

 private:
  /// One for the gradients, and at most one per range for the weights.
  [[nodiscard]] static std::size_t most_ranges(const ArenaLayout& layout) {
    return 1 + std::max<std::size_t>(1, layout.units.size());
  }
  /// Computes norms_ of weights and gradients over all ranges.
  void take_norms(std::span<const ParameterRange> ranges, std::span<const float> gradients) {
    ranges_.assign(1, {0, table().arena_size(), gradients.data()});
    for (const ParameterRange& range : ranges) {
      const float* const values = range.parameters.data();
      // Merge contiguous ranges of one arena.
      if (ranges_.size() > 1 && ranges_.back().values == values &&
          ranges_.back().end == range.begin) {
        ranges_.back().end = range.end;
      } else {
        ranges_.push_back({range.begin, range.end, values});
      }
    }
    const auto squared = table().squared(device(), ranges_);
    const std::size_t tensors = ratios_.size();
    for (std::size_t i = 0; i < tensors; ++i) {
      norms_[2 * i] = 0;
      for (std::size_t at = tensors + i; at < squared.size(); at += tensors) {
        norms_[2 * i] += squared[at];
      }
      norms_[2 * i + 1] = squared[i];
    }
    measured_ = true;
  }
  void queue_ratios(float gradient_scale) {
    for (std::size_t i = 0; i < ratios_.size(); ++i) {
      const Segment& segment = table().segments()[i];
      if (!segment.adapts) continue;
      ratios_[i] = trust_ratio(trust_, std::sqrt(norms_[2 * i]),
                               static_cast<double>(gradient_scale) * std::sqrt(norms_[2 * i + 1]),
                               static_cast<double>(segment.weight_decay));
    }
    // take_norms() has synchronized the device, so the last step's copy is done.
    table().set_ratios(device(), ratios_);
  }

  float momentum_;
  double trust_;
  SumOverRanks sum_norms_;  ///< empty: this rank holds whole tensors
  bool measured_ = false;   ///< norms_ are this step's, and their ratios are not queued yet
  std::vector<TensorTable::Range> ranges_;
  std::vector<double> norms_;   ///< by tensor: squared norms of its weights and gradients
  std::vector<double> ratios_;  ///< by tensor; 1 if it does not adapt
};

}  // namespace

std::unique_ptr<Optimizer> make_device_optimizer(std::shared_ptr<Device> device,
                                                 const Config& config, const ArenaLayout& layout,
                                                 const SumOverRanks& sum_norms) {
  switch (config.optimizer) {
    case OptimizerKind::sgd:
      return std::make_unique<DeviceSgd>(std::move(device), config, layout);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return std::make_unique<DeviceAdam>(std::move(device), config, layout);
    case OptimizerKind::lars:
      return std::make_unique<DeviceLars>(std::move(device), config, layout, sum_norms);
  }
  fail(ExitStatus::internal, "optimizer {} is unknown", static_cast<int>(config.optimizer));
}

}  // namespace lockstep::cuda
