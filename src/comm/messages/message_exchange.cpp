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
      memory_(std::make_shared<MessageMemory>(options.piece_bytes, options.receive_buffer_bytes)) {
  reserve();
}

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
    reserve();
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

void MessageExchange::reserve() {
  const std::size_t most = flights_.size() * (2 * most_tested);
  tested_.reserve(most);
  requests_.reserve(most);
  completed_.reserve(most);
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
    for (std::uint64_t at = ended_; at < added_; ++at) {
      moved |= start_receives(flight(at));
      moved |= start_sends(flight(at));
    }
    test_messages();
    for (std::uint64_t at = ended_; at < added_; ++at) {
      moved |= end_receives(flight(at));
      moved |= end_sends(flight(at));
    }
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

void MessageExchange::test_messages() {
  tested_.clear();
  requests_.clear();
  const auto add = [this](MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    tested_.push_back(&request);
    requests_.push_back(request);
  };
  for (std::uint64_t at = ended_; at < added_; ++at) {
    Flight& each = flight(at);
    const std::size_t arriving = std::min(each.receives_started, each.receives_ended + most_tested);
    for (std::size_t i = each.receives_ended; i < arriving; ++i) {
      add(each.receives[i % most_messages].request);
    }
    const std::size_t leaving = std::min(each.sends_started, each.sends_ended + most_tested);
    for (std::size_t i = each.sends_ended; i < leaving; ++i) {
      add(each.sends[i % most_messages]);
    }
  }
  completed_.resize(requests_.size());
  int count = 0;
  group_->check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                             completed_.data(), MPI_STATUSES_IGNORE),
                "MPI_Testsome");
  for (int i = 0; i < count; ++i) {
    *tested_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(i)])] = MPI_REQUEST_NULL;
  }
}

bool MessageExchange::start_receives(Flight& flight) {
  bool moved = false;
  while (flight.receives_started < flight.plan->receives.size() &&
         flight.receives_started - flight.receives_ended < most_messages) {
    const Message& message = flight.plan->receives[flight.receives_started];
    if (flight.sends_ended < message.after_sends) break;
    Posted& posted = flight.receives[flight.receives_started % most_messages];
    posted.buffer = message.reduces ? memory_->take_receive_buffer() : target(flight, message);
    if (posted.buffer == nullptr) break;
    group_->check(
        MPI_Irecv(posted.buffer, static_cast<int>(message.count), datatype(flight.operation.type),
                  message.peer, flight.tag, group_->get(), &posted.request),
        "MPI_Irecv");
    ++flight.receives_started;
    moved = true;
  }
  return moved;
}

bool MessageExchange::start_sends(Flight& flight) {
  constexpr std::size_t long_bytes = std::size_t{32} << 10;
  bool moved = false;
  while (flight.sends_started < flight.plan->sends.size() &&
         flight.sends_started - flight.sends_ended <
             (network_buffers_ ? most_buffered_sends : most_messages)) {
    const Message& message = flight.plan->sends[flight.sends_started];
    if (flight.receives_ended < message.after_receives) break;
    MPI_Request& request = flight.sends[flight.sends_started % most_messages];
    group_->check(MPI_Isend(source(flight, message), static_cast<int>(message.count),
                            datatype(flight.operation.type), message.peer, flight.tag,
                            group_->get(), &request),
                  "MPI_Isend");
    ++flight.sends_started;
    moved = true;
    if (network_buffers_ || message.count * size_of(flight.operation.type) < long_bytes) continue;
    int done = 0;
    group_->check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    network_buffers_ = done != 0;
  }
  return moved;
}

bool MessageExchange::end_receives(Flight& flight) {
  bool moved = false;
  while (flight.receives_ended < flight.receives_started) {
    Posted& posted = flight.receives[flight.receives_ended % most_messages];
    if (posted.request != MPI_REQUEST_NULL) break;
    const Message& message = flight.plan->receives[flight.receives_ended];
    if (message.reduces) {
      add_values(flight.operation.type, target(flight, message), source(flight, message),
                 posted.buffer, message.count);
      memory_->give_back_receive_buffer(posted.buffer);
    }
    ++flight.receives_ended;
    moved = true;
  }
  return moved;
}

bool MessageExchange::end_sends(Flight& flight) {
  bool moved = false;
  while (flight.sends_ended < flight.sends_started) {
    if (flight.sends[flight.sends_ended % most_messages] != MPI_REQUEST_NULL) break;
    ++flight.sends_ended;
    moved = true;
  }
  return moved;
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
