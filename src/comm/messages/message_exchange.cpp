#include "message_exchange.hpp"

#include "../element_sums.hpp"
#include "../keep_until_exit.hpp"
#include "../mpi_types.hpp"
#include "lockstep/comm/element_size.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {

MessageExchange::MessageExchange(std::unique_ptr<MpiGroup> group, const Options& options)
    : group_(std::move(group)),
      options_(options),
      memory_(std::make_shared<MessageMemory>(options.piece_bytes, options.landing_bytes)) {}

MessageExchange::~MessageExchange() {
  if (is_idle()) return;
  // After a failure, requests may remain in flight forever.
  group_->abandon();
  keep_until_exit(memory_);
}

void MessageExchange::add(const ExchangeOperation& operation) {
  if (added_ - ended_ == flights_.size()) {
    std::vector<Flight> more(2 * flights_.size());
    for (std::uint64_t at = ended_; at < added_; ++at) {
      more[at % more.size()] = std::move(flight(at));
    }
    flights_ = std::move(more);
  }
  const std::size_t bytes = size_of(operation.type);
  const std::size_t own = static_cast<std::size_t>(group_->rank()) * operation.count;
  Flight& next = flight(added_);
  next.operation = operation;
  next.plan = &plan_for(operation);
  next.sends_started = next.sends_ended = next.receives_started = next.receives_ended = 0;
  constexpr std::uint64_t tags = 32768;  // MPI guarantees that many
  next.tag = static_cast<int>(added_ % tags);
  if (operation.reduces && !operation.gathers) {
    if (group_->size() == 1) {
      std::memcpy(operation.to, operation.from, operation.count * bytes);
    } else {
      next.partial = memory_->partial_sums.take(operation.total * bytes);
    }
  }
  const bool has_own = own < operation.total;
  if (!operation.reduces && has_own && operation.from != operation.to + own * bytes) {
    const std::size_t count = std::min(operation.count, operation.total - own);
    std::memcpy(operation.to + own * bytes, operation.from, count * bytes);
  }
  ++added_;
  advance();
}

const MessagePlan& MessageExchange::plan_for(const ExchangeOperation& operation) {
  const MessageShape shape{.schedule = options_.schedule,
                           .rank = group_->rank(),
                           .ranks = group_->size(),
                           .count = operation.count,
                           .total = operation.total,
                           .piece = options_.piece_bytes / size_of(operation.type),
                           .reduces = operation.reduces,
                           .gathers = operation.gathers};
  const auto known = std::ranges::find(plans_, shape, &CachedPlan::shape);
  if (known != plans_.end()) return known->plan;
  return plans_.emplace_back(CachedPlan{.shape = shape, .plan = plan_messages(shape)}).plan;
}

bool MessageExchange::advance() {
  if (is_idle()) return false;
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    // The oldest first: it gets memory that becomes free.
    for (std::uint64_t at = ended_; at < added_; ++at) moved |= advance(flight(at));
    any |= moved;
  }
  while (ended_ < added_ && has_ended(flight(ended_))) {
    memory_->partial_sums.give_back(std::exchange(flight(ended_).partial, nullptr));
    ++ended_;
  }
  return any;
}

bool MessageExchange::has_ended(const Flight& flight) noexcept {
  return flight.receives_ended == flight.plan->receives.size() &&
         flight.sends_ended == flight.plan->sends.size();
}

bool MessageExchange::advance(Flight& flight) {
  if (has_ended(flight)) return false;
  bool moved = start_receives(flight);
  moved |= start_sends(flight);
  moved |= end_receives(flight);
  moved |= end_sends(flight);
  return moved;
}

bool MessageExchange::start_receives(Flight& flight) {
  bool moved = false;
  while (flight.receives_started < flight.plan->receives.size() &&
         flight.receives_started - flight.receives_ended < in_flight) {
    const Message& message = flight.plan->receives[flight.receives_started];
    if (flight.sends_ended < message.after_sends) break;
    Posted& posted = flight.receives[flight.receives_started % in_flight];
    posted.landing = message.reduces ? memory_->take_landing() : target(flight, message);
    if (posted.landing == nullptr) break;
    group_->check(
        MPI_Irecv(posted.landing, static_cast<int>(message.count), datatype(flight.operation.type),
                  message.peer, flight.tag, group_->get(), &posted.request),
        "MPI_Irecv");
    ++flight.receives_started;
    moved = true;
  }
  return moved;
}

bool MessageExchange::start_sends(Flight& flight) {
  bool moved = false;
  while (flight.sends_started < flight.plan->sends.size() &&
         flight.sends_started - flight.sends_ended < in_flight) {
    const Message& message = flight.plan->sends[flight.sends_started];
    if (flight.receives_ended < message.after_receives) break;
    group_->check(MPI_Isend(source(flight, message), static_cast<int>(message.count),
                            datatype(flight.operation.type), message.peer, flight.tag,
                            group_->get(), &flight.sends[flight.sends_started % in_flight].request),
                  "MPI_Isend");
    ++flight.sends_started;
    moved = true;
  }
  return moved;
}

bool MessageExchange::end_receives(Flight& flight) {
  bool moved = false;
  while (flight.receives_ended < flight.receives_started) {
    Posted& posted = flight.receives[flight.receives_ended % in_flight];
    if (!is_done(posted.request)) break;
    const Message& message = flight.plan->receives[flight.receives_ended];
    if (message.reduces) {
      add_values(flight.operation.type, target(flight, message), source(flight, message),
                 posted.landing, message.count);
      memory_->give_back_landing(posted.landing);
    }
    ++flight.receives_ended;
    moved = true;
  }
  return moved;
}

bool MessageExchange::end_sends(Flight& flight) {
  bool moved = false;
  while (flight.sends_ended < flight.sends_started) {
    if (!is_done(flight.sends[flight.sends_ended % in_flight].request)) break;
    ++flight.sends_ended;
    moved = true;
  }
  return moved;
}

bool MessageExchange::is_done(MPI_Request& request) {
  int done = 0;
  group_->check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

const std::byte* MessageExchange::source(const Flight& flight, const Message& message) const {
  if (message.is_partial_sum || !flight.operation.reduces) return target(flight, message);
  return flight.operation.from + message.begin * size_of(flight.operation.type);
}

std::byte* MessageExchange::target(const Flight& flight, const Message& message) const {
  const ExchangeOperation& operation = flight.operation;
  const std::size_t bytes = size_of(operation.type);
  if (operation.gathers) return operation.to + message.begin * bytes;
  const std::size_t own = static_cast<std::size_t>(group_->rank()) * operation.count;
  const bool is_own = message.begin >= own && message.begin < own + operation.count;
  return is_own ? operation.to + (message.begin - own) * bytes
                : flight.partial + message.begin * bytes;
}

}  // namespace lockstep
