#include "device_optimizer.hpp"

#include "../optimizers.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "tensor_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

namespace lockstep::gpu {
namespace {

class DeviceOptimizer : public Optimizer {
 public:
  DeviceOptimizer(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
                  std::vector<std::string> slot_names, std::size_t rows = 1)
      : device_(std::move(device)),
        table_(*device_, make_segments(layout, config.weight_decay, config.decay_norm_and_bias),
               layout.size(), rows),
        slot_names_(std::move(slot_names)) {
    if (config.ema_decay > 0) slot_names_.emplace_back(ema_slot);
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
  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) final {
    const UpdateRange range = table_.range(begin, end, parameters, gradients, options);
    prepare_update(parameters, gradients, options);
    queue_update(range, options);
    if (options.ema_decay == EmaSchedule::unchanged) return;
    average_update(device_->stream(), range, options.ema_decay, slots_.back().data());
  }
  [[nodiscard]] double squared_norm(std::span<const float> gradients) override {
    table_.queue_squares(*device_, {0, table_.arena_size(), gradients.data()}, 0);
    const auto squared = table_.read_norms(*device_, 1);
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
  /// Queues what the update of any range needs first.
  virtual void prepare_update(std::span<float> /*parameters*/, std::span<const float> /*gradients*/,
                              const UpdateOptions& /*options*/) {}
  virtual void queue_update(const UpdateRange& range, const UpdateOptions& options) = 0;

 private:
  std::shared_ptr<Device> device_;
  TensorTable table_;
  std::vector<std::string> slot_names_;
  std::vector<DeviceArray<float>> slots_;
};

template <typename Rule>
class DeviceMomentum final : public DeviceOptimizer {
 public:
  DeviceMomentum(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout)
      : DeviceOptimizer(std::move(device), config, layout, {Rule::slot_name}),
        name_(traits_of(config.optimizer).name),
        rule_(Rule::of(momentum_options(config))) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  void queue_update(const UpdateRange& range, const UpdateOptions& /*options*/) override {
    momentum_update(device().stream(), range, rule_, slot(0).data());
  }

  std::string_view name_;
  Rule rule_;
};

AdamUpdate adam_options(const Config& config) {
  return {.beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.eps,
          .correction1 = 1,
          .correction2 = 1,
          .decoupled_decay = traits_of(config.optimizer).decouples_decay};
}
/// With the bias corrections of a step.
AdamUpdate at_step(AdamUpdate options, std::int64_t step) {
  options.correction1 = 1.0 - std::pow(options.beta1, static_cast<double>(step));
  options.correction2 = 1.0 - std::pow(options.beta2, static_cast<double>(step));
  return options;
}

class DeviceAdam final : public DeviceOptimizer {
 public:
  DeviceAdam(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout)
      : DeviceOptimizer(std::move(device), config, layout, {"exp_avg", "exp_avg_sq"}),
        options_(adam_options(config)) {}

  [[nodiscard]] std::string_view name() const noexcept override {
    return options_.decoupled_decay ? "adamw" : "adam";
  }

 private:
  void queue_update(const UpdateRange& range, const UpdateOptions& options) override {
    adam_update(device().stream(), range, at_step(options_, options.step), slot(0).data(),
                slot(1).data());
  }

  AdamUpdate options_;
};

/// Scales each weight's step by a trust ratio of two norms of the whole tensor.
class DeviceLayerwise : public DeviceOptimizer {
 public:
  DeviceLayerwise(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
                  std::vector<std::string> slot_names, SumOverRanks sum_norms)
      : DeviceOptimizer(std::move(device), config, layout, std::move(slot_names),
                        2 * most_ranges(layout)),
        is_sharded_(layout.is_sharded()),
        sum_norms_(std::move(sum_norms)),
        squares_(2 * table().segments().size()),
        ratios_(table().segments().size(), 1.0) {
    ranges_.reserve(most_ranges(layout));
  }

  [[nodiscard]] bool needs_all_gradients() const noexcept final { return true; }
  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients,
               const UpdateOptions& options) final {
    merge(ranges);
    const std::size_t count = ranges_.size();
    for (std::size_t i = 0; i < count; ++i) {
      queue_norms(ranges_[i], gradients, options, {i, count + i});
    }
    const std::size_t tensors = ratios_.size();
    const auto rows = table().read_norms(device(), 2 * count);
    for (std::size_t i = 0; i < tensors; ++i) {
      squares_[2 * i] = squares_[2 * i + 1] = 0;
      for (std::size_t row = 0; row < count; ++row) {
        squares_[2 * i] += rows[row * tensors + i];
        squares_[2 * i + 1] += rows[(count + row) * tensors + i];
      }
    }
    measured_ = true;
    sum_norms_(squares_);
  }

 protected:
  /// Queues the squares of what moves each tensor of the range into a row of norms.
  virtual void queue_squares_of_moves(const UpdateRange& range, const UpdateOptions& options,
                                      std::size_t row) = 0;
  virtual void queue_ratios_on_device(const UpdateOptions& options) = 0;
  /// A tensor's ratio, from its two norms.
  [[nodiscard]] virtual double ratio(const Segment& segment, double weights, double moves,
                                     const UpdateOptions& options) const = 0;

 private:
  void prepare_update(std::span<float> parameters, std::span<const float> gradients,
                      const UpdateOptions& options) final {
    if (!is_sharded_) {
      queue_norms({0, table().arena_size(), parameters}, gradients, options, {0, 1});
      queue_ratios_on_device(options);
    } else if (std::exchange(measured_, false)) {
      queue_ratios(options);
    }
  }
  [[nodiscard]] static std::size_t most_ranges(const ArenaLayout& layout) {
    return std::max<std::size_t>(1, layout.units.size());
  }
  /// Merges contiguous ranges of one arena.
  void merge(std::span<const ParameterRange> ranges) {
    ranges_.clear();
    for (const ParameterRange& range : ranges) {
      if (!ranges_.empty() && ranges_.back().parameters.data() == range.parameters.data() &&
          ranges_.back().end == range.begin) {
        ranges_.back().end = range.end;
      } else {
        ranges_.push_back(range);
      }
    }
  }
  struct Rows {
    std::size_t weights;
    std::size_t moves;
  };
  void queue_norms(const ParameterRange& range, std::span<const float> gradients,
                   const UpdateOptions& options, Rows rows) {
    table().queue_squares(device(), {range.begin, range.end, range.parameters.data()},
                          rows.weights);
    queue_squares_of_moves(
        table().range(range.begin, range.end, range.parameters, gradients, options), options,
        rows.moves);
  }
  void queue_ratios(const UpdateOptions& options) {
    for (std::size_t i = 0; i < ratios_.size(); ++i) {
      const Segment& segment = table().segments()[i];
      if (!segment.adapts) continue;
      ratios_[i] =
          ratio(segment, std::sqrt(squares_[2 * i]), std::sqrt(squares_[2 * i + 1]), options);
    }
    // measure() has synchronized the device, so the last step's copy is done.
    table().set_ratios(device(), ratios_);
  }

  bool is_sharded_;
  SumOverRanks sum_norms_;
  bool measured_ = false;  ///< squares_ are this step's, and their ratios are not queued yet
  std::vector<ParameterRange> ranges_;
  std::vector<double> squares_;  ///< by tensor: of its weights, and of what moves them
  std::vector<double> ratios_;   ///< by tensor; 1 if it does not adapt
};

class DeviceLars final : public DeviceLayerwise {
 public:
  DeviceLars(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
             SumOverRanks sum_norms)
      : DeviceLayerwise(std::move(device), config, layout, {"momentum_buffer"},
                        std::move(sum_norms)),
        rule_{.momentum = static_cast<float>(config.momentum)},
        trust_(config.trust_coefficient) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "lars"; }

 private:
  void queue_squares_of_moves(const UpdateRange& range, const UpdateOptions& /*options*/,
                              std::size_t row) override {
    table().queue_squares(device(), {range.begin, range.end, range.gradients}, row);
  }
  void queue_ratios_on_device(const UpdateOptions& options) override {
    table().queue_trust_ratios(device(), trust_, false, options);
  }
  [[nodiscard]] double ratio(const Segment& segment, double weights, double moves,
                             const UpdateOptions& options) const override {
    return trust_ratio(trust_, weights, static_cast<double>(options.gradient_scale) * moves,
                       static_cast<double>(segment.weight_decay));
  }
  void queue_update(const UpdateRange& range, const UpdateOptions& /*options*/) override {
    momentum_update(device().stream(), range, rule_, slot(0).data());
  }

  LarsRule rule_;
  double trust_;
};

class DeviceLamb final : public DeviceLayerwise {
 public:
  DeviceLamb(std::shared_ptr<Device> device, const Config& config, const ArenaLayout& layout,
             SumOverRanks sum_norms)
      : DeviceLayerwise(std::move(device), config, layout, {"exp_avg", "exp_avg_sq"},
                        std::move(sum_norms)),
        options_(adam_options(config)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "lamb"; }

 private:
  void queue_squares_of_moves(const UpdateRange& range, const UpdateOptions& options,
                              std::size_t row) override {
    adam_step_norms(device().stream(), range, at_step(options_, options.step), slot(0).data(),
                    slot(1).data(), table().segments().size(), table().norms(row),
                    table().workspace());
  }
  void queue_ratios_on_device(const UpdateOptions& options) override {
    table().queue_trust_ratios(device(), 1, true, options);
  }
  [[nodiscard]] double ratio(const Segment& /*segment*/, double weights, double moves,
                             const UpdateOptions& /*options*/) const override {
    return trust_ratio(1, weights, moves, 0);
  }
  void queue_update(const UpdateRange& range, const UpdateOptions& options) override {
    adam_update(device().stream(), range, at_step(options_, options.step), slot(0).data(),
                slot(1).data());
  }

  AdamUpdate options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_device_optimizer(std::shared_ptr<Device> device,
                                                 const Config& config, const ArenaLayout& layout,
                                                 const SumOverRanks& sum_norms) {
  switch (config.optimizer) {
    case OptimizerKind::sgd:
      return std::make_unique<DeviceMomentum<SgdRule>>(std::move(device), config, layout);
    case OptimizerKind::lion:
      return std::make_unique<DeviceMomentum<LionRule>>(std::move(device), config, layout);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return std::make_unique<DeviceAdam>(std::move(device), config, layout);
    case OptimizerKind::lars:
      return std::make_unique<DeviceLars>(std::move(device), config, layout, sum_norms);
    case OptimizerKind::lamb:
      return std::make_unique<DeviceLamb>(std::move(device), config, layout, sum_norms);
  }
  fail(ExitStatus::internal, "optimizer {} is unknown", static_cast<int>(config.optimizer));
}

}  // namespace lockstep::gpu
