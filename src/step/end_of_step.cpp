#include "lockstep/step/step_graph.hpp"

namespace lockstep {

std::vector<StepOp> end_of_step(const StepEnd& end) {
  using Kind = StepOp::Kind;
  std::vector<StepOp> ops;
  const auto add = [&ops](Kind kind, std::size_t unit = 0) {
    ops.push_back({.kind = kind, .unit = unit});
  };
  const std::size_t last = end.units - (end.units > 0 ? 1 : 0);
  add(Kind::start_tail, last);
  if (end.has_replicas && end.awaits_reductions) {
    for (std::size_t unit = 0; unit < end.units; ++unit) {
      add(Kind::await_reduction, unit);
      add(Kind::start_replica_reduction, unit);
    }
  }
  for (std::size_t unit = 0; unit < end.units; ++unit) {
    if (end.tail_joins_last && unit == last) {
      add(Kind::await_tail, unit);
    } else if (end.has_replicas) {
      add(Kind::await_replica_reduction, unit);
    } else if (end.awaits_reductions) {
      add(Kind::await_reduction, unit);
    }
    if (!end.decides()) add(Kind::update, unit);
  }
  if (!end.tail_joins_last) add(Kind::await_tail, last);
  if (end.decides()) {
    add(Kind::decide);
    add(Kind::update_all);
  }
  // Forward needs the last unit first.
  if (end.gathers) {
    for (std::size_t unit = end.units; unit-- > 0;) add(Kind::start_gather, unit);
  }
  return ops;
}

}  // namespace lockstep
