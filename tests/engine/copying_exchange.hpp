#pragma once

#include "lockstep/engine/engine.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Copies the gradients of each bucket when a program starts its reduction. There is a bucket for
/// every `tensors` of them.
class CopyingExchange final : public UnitExchange {
 public:
  explicit CopyingExchange(Engine& engine, std::size_t tensors = 1)
      : engine_(engine), copy(engine.layout().size()) {
    const std::vector<ArenaView>& views = engine.layout().views;
    for (std::size_t i = tensors; i < views.size(); i += tensors) ends.push_back(views[i].offset);
    ends.push_back(engine.layout().size());
  }

  [[nodiscard]] std::unique_ptr<Program> compile_training(std::int64_t batch_size) {
    return engine_.compile(
        {.batch_size = batch_size, .training = true, .exchange = this, .bucket_ends = ends});
  }
  void start_reduction(std::size_t unit, std::span<const float> gradients) override {
    started.push_back(unit);
    const std::size_t begin = unit == 0 ? 0 : ends[unit - 1];
    engine_.memory().read(gradients, std::span(copy).subspan(begin, ends[unit] - begin));
  }
  void await_reduction(std::size_t /*unit*/) override {}
  void progress() override {}
  void await(FunctionRef<bool()> reached) override {
    while (!reached()) continue;
  }
  /// Whether every bucket was started once, in order.
  [[nodiscard]] bool started_all() const {
    std::size_t next = 0;
    return started.size() == ends.size() &&
           std::ranges::all_of(started, [&](std::size_t unit) { return unit == next++; });
  }

 private:
  Engine& engine_;

 public:
  std::vector<std::size_t> ends;
  std::vector<std::size_t> started;
  std::vector<float> copy;
};

}  // namespace lockstep
