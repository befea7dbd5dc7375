#include "lockstep/step/step_graph.hpp"

#include "index.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

class Sharding final {
 public:
  Sharding(StepGraph steps, const Graph& graph, const StepUnits& units)
      : steps_(std::move(steps)), graph_(graph), units_(units), entered_(units.ends.size()) {}

  StepGraph run() {
    for (StepOp& op : std::exchange(steps_.ops, {})) {
      const bool begins = op.kind == StepOp::Kind::loss_gradient;
      enter_units_of(op);
      for (const ParameterId id : op.completes) {
        filled_ = std::max(filled_, units_.filled_after[at(id)]);
      }
      steps_.ops.push_back(std::move(op));
      if (begins) begin_backward();
      reduce();
    }
    if (const auto most = units_.reductions_in_flight) {
      for (std::size_t unit = reduced_ - std::min(reduced_, *most); unit < reduced_; ++unit) {
        await_reduction(unit);
      }
    }
    return std::move(steps_);
  }

 private:
  void add(StepOp::Kind kind, std::size_t unit, bool in_last_micro_step = false) {
    steps_.ops.push_back({.kind = kind, .unit = unit, .in_last_micro_step = in_last_micro_step});
  }

  /// The last unit that forward used is the first that backward uses, so it stays gathered. So does
  /// the unit of all vectors, which every layer uses and which is small.
  void begin_backward() {
    in_backward_ = true;
    for (std::size_t unit = 0; unit < units_.stays.size(); ++unit) {
      entered_[unit] = entered_[unit] && (units_.stays[unit] || unit == last_entered_);
    }
    prefetch_ = steps_.ops.size();
  }

  void enter_units_of(const StepOp& op) {
    if (!units_.gathers && (!units_.awaits || in_backward_)) return;
    // A cheap op that is computed again uses what its lowering has kept of the parameters.
    const bool uses = op.kind == StepOp::Kind::forward ||
                      (op.kind == StepOp::Kind::recompute && !steps_.recomputes_lazily) ||
                      (op.kind == StepOp::Kind::gradient && op.gradient.reads_parameters);
    if (!uses) return;
    for (const ParameterId id : graph_.nodes()[at(op.node)].parameters) {
      enter(units_.unit_of[at(id)]);
      if (op.kind == StepOp::Kind::gradient) break;  // biases are not read
    }
  }

  /// Parameters are gathered before their first use in a pass, the next unit's while this one
  /// computes.
  void enter(std::size_t unit) {
    if (entered_[unit]) return;
    entered_[unit] = true;
    if (!units_.stays[unit]) last_entered_ = unit;
    if (units_.gathers) {
      steps_.ops.insert(steps_.ops.begin() + static_cast<std::ptrdiff_t>(prefetch_),
                        {.kind = StepOp::Kind::start_gather, .unit = unit});
    }
    add(StepOp::Kind::await_gather, unit);
    prefetch_ = steps_.ops.size();
  }

  /// Starts the reductions of units whose gradients are now final. Some stay in flight while the
  /// next units' gradients are computed.
  void reduce() {
    const auto most = units_.reductions_in_flight;
    for (; reduced_ < units_.ends.size() && units_.ends[reduced_] <= filled_; ++reduced_) {
      if (most && reduced_ >= *most) await_reduction(reduced_ - *most);
      add(StepOp::Kind::start_reduction, reduced_, !most);
    }
  }
  void await_reduction(std::size_t unit) {
    add(StepOp::Kind::await_reduction, unit);
    if (units_.has_replicas) add(StepOp::Kind::start_replica_reduction, unit, true);
  }

  StepGraph steps_;
  const Graph& graph_;
  const StepUnits& units_;
  std::vector<bool> entered_;  ///< by unit: in this pass
  std::optional<std::size_t> last_entered_;
  std::size_t prefetch_ = 0;  ///< where the next gather may start
  std::size_t filled_ = 0;
  std::size_t reduced_ = 0;
  bool in_backward_ = false;
};

}  // namespace

StepGraph shard(StepGraph steps, const Graph& graph, const StepUnits& units) {
  return Sharding(std::move(steps), graph, units).run();
}

}  // namespace lockstep
