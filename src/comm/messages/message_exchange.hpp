#pragma once

#include "../exchange/exchange.hpp"
#include "../mpi_group.hpp"
#include "message_memory.hpp"
#include "message_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

namespace lockstep {

/// Collectives by point-to-point messages between all ranks of an MPI group, on planned schedules.
/// Values are added in the order of the schedule, so a sum has the same bits in every run and on
/// all ranks. A sum of 16-bit values is rounded once for each addition of two partial sums.
class MessageExchange final : public Exchange {
 public:
  struct Options {
    BlockSchedule schedule = BlockSchedule::halving;
    std::size_t piece_bytes = 0;  ///< largest message
    /// Limit on memory for messages that have not been added yet.
    std::size_t landing_bytes = 0;
  };
  MessageExchange(std::unique_ptr<MpiGroup> group, const Options& options);
  MessageExchange(const MessageExchange&) = delete;
  MessageExchange& operator=(const MessageExchange&) = delete;
  ~MessageExchange() override;

  void add(const ExchangeOperation& operation) override;
  bool advance() override;
  [[nodiscard]] std::uint64_t ended() const noexcept override { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept override { return added_; }

 private:
  static constexpr std::size_t in_flight = 1024;  ///< messages per operation and direction

  /// A message that MPI is sending or receiving.
  struct Posted {
    MPI_Request request = MPI_REQUEST_NULL;
    std::byte* landing = nullptr;  ///< where received values are before they are added
  };
  /// An operation in flight. Messages are started and ended in order.
  struct Flight {
    ExchangeOperation operation;
    const MessagePlan* plan = nullptr;
    std::byte* partial =
        nullptr;  ///< partial sums, as `operation.from`, if that is not reduced in place
    std::vector<Posted> sends = std::vector<Posted>(in_flight);
    std::vector<Posted> receives = std::vector<Posted>(in_flight);
    std::size_t sends_started = 0;
    std::size_t sends_ended = 0;
    std::size_t receives_started = 0;
    std::size_t receives_ended = 0;
    int tag = 0;
  };
  struct CachedPlan {
    MessageShape shape;
    MessagePlan plan;
  };

  [[nodiscard]] const MessagePlan& plan_for(const ExchangeOperation& operation);
  [[nodiscard]] Flight& flight(std::uint64_t operation) noexcept {
    return flights_[operation % flights_.size()];
  }
  [[nodiscard]] static bool has_ended(const Flight& flight) noexcept;
  bool advance(Flight& flight);
  bool start_receives(Flight& flight);
  bool start_sends(Flight& flight);
  bool end_receives(Flight& flight);
  bool end_sends(Flight& flight);
  [[nodiscard]] bool is_done(MPI_Request& request);
  /// Where this rank has the message's values: those to send, or those to add received ones to.
  [[nodiscard]] const std::byte* source(const Flight& flight, const Message& message) const;
  /// Where values of the message are stored.
  [[nodiscard]] std::byte* target(const Flight& flight, const Message& message) const;

  std::unique_ptr<MpiGroup> group_;
  Options options_;
  std::shared_ptr<MessageMemory>
      memory_;  ///< kept until the process ends if requests are abandoned
  std::list<CachedPlan> plans_;
  std::vector<Flight> flights_ = std::vector<Flight>(16);  ///< a ring
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace lockstep
