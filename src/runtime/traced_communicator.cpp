#include "lockstep/runtime/traced_communicator.hpp"

#include "lockstep/comm/element_size.hpp"

namespace lockstep {
namespace {

/// A literal, since events do not copy their names.
const char* name_of(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::started_all_reduce:
      return "all-reduce";
    case CollectiveKind::started_reduce_scatter:
      return "reduce-scatter";
    case CollectiveKind::started_all_gather:
      return "all-gather";
    default:
      return to_string(kind).data();
  }
}

}  // namespace

TraceArguments TracedCommunicator::arguments_of(const CollectiveCall& call) const noexcept {
  // Counts the whole buffer for collectives in which each rank sends or receives a part.
  const bool of_parts = call.kind == CollectiveKind::started_reduce_scatter ||
                        call.kind == CollectiveKind::started_all_gather ||
                        call.kind == CollectiveKind::reduce_scatter ||
                        call.kind == CollectiveKind::all_gather ||
                        call.kind == CollectiveKind::gather || call.kind == CollectiveKind::scatter;
  const std::size_t parts = of_parts ? static_cast<std::size_t>(size()) : 1;
  return {{{"step", recorder_.step()},
           {"bytes", static_cast<std::int64_t>(parts * call.count * size_of(call.type))},
           {"ranks", size()}}};
}

void TracedCommunicator::begin(const CollectiveCall& call) {
  blocking_ = waiting_.open(name_of(call.kind), arguments_of(call));
}

void TracedCommunicator::before_start(const CollectiveCall& call) {
  starting_ = under_way_.open(name_of(call.kind), arguments_of(call));
}

void TracedCommunicator::after_start(CollectiveKind kind, const Request& request) {
  if (request.done()) return under_way_.close(starting_);
  const auto slot = static_cast<std::size_t>(request.slot);
  if (slot >= requests_.size()) requests_.resize(slot + 1);
  requests_[slot] = {.kind = kind, .handle = starting_};
}

bool TracedCommunicator::test(Request& request) {
  if (request.done()) return inner().test(request);
  const UnderWay& started = requests_.at(static_cast<std::size_t>(request.slot));
  const bool done = inner().test(request);
  if (done) under_way_.close(started.handle);
  return done;
}

void TracedCommunicator::wait(Request& request) {
  if (request.done()) return inner().wait(request);
  const UnderWay started = requests_.at(static_cast<std::size_t>(request.slot));
  const TraceSpan waiting(&waiting_, name_of(started.kind), {{{"step", recorder_.step()}}});
  inner().wait(request);
  under_way_.close(started.handle);
}

void TracedCommunicator::synchronize() {
  const TraceSpan waiting(&waiting_, name_of(CollectiveKind::synchronize),
                          {{{"step", recorder_.step()}}});
  inner().synchronize();
}

void TracedCommunicator::synchronize_until(FunctionRef<bool()> reached) {
  const TraceSpan waiting(&waiting_, name_of(CollectiveKind::synchronize),
                          {{{"step", recorder_.step()}}});
  inner().synchronize_until(reached);
}

}  // namespace lockstep
