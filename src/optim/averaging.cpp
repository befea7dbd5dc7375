#include "lockstep/optim/weight_average.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class Averaging final : public Optimizer {
 public:
  Averaging(std::unique_ptr<Optimizer> inner, const ArenaLayout& layout)
      : inner_(std::move(inner)),
        names_(inner_->slot_names().begin(), inner_->slot_names().end()),
        average_(layout.size()) {
    names_.emplace_back(ema_slot);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t index) noexcept override {
    return index + 1 == names_.size() ? average_.span() : inner_->slot(index);
  }
  [[nodiscard]] bool needs_all_gradients() const noexcept override {
    return inner_->needs_all_gradients();
  }
  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients,
               const UpdateOptions& options) override {
    inner_->measure(ranges, gradients, options);
  }
  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    inner_->update(begin, end, parameters, gradients, options);
    if (options.ema_decay == EmaSchedule::unchanged) return;
    const std::size_t size = std::min(end, average_.size()) - begin;
    update_average(average_.span().subspan(begin, size), parameters.subspan(begin, size),
                   options.ema_decay);
  }
  [[nodiscard]] double squared_norm(std::span<const float> gradients) override {
    return inner_->squared_norm(gradients);
  }

 private:
  std::unique_ptr<Optimizer> inner_;
  std::vector<std::string> names_;
  AlignedBuffer<float> average_;
};

}  // namespace

std::unique_ptr<Optimizer> make_averaging(std::unique_ptr<Optimizer> inner,
                                          const ArenaLayout& layout) {
  return std::make_unique<Averaging>(std::move(inner), layout);
}

}  // namespace lockstep
