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
    std::size_t receive_buffer_bytes = 0;
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
  /// Messages of an operation that MPI sends or receives at once.
  static constexpr std::size_t most_messages = 1024;
  /// The same for sends on a network that buffers them: few, as more would wait behind each other
  /// while other peers could receive.
  static constexpr std::size_t most_buffered_sends = 2;
  /// Messages of an operation, in each direction, that one call of MPI tests.
  static constexpr std::size_t most_tested = 16;

  /// A message that MPI is receiving.
  struct Posted {
    MPI_Request request = MPI_REQUEST_NULL;  ///< null: received
    std::byte* buffer = nullptr;             ///< where received values are before they are added
  };
  /// An operation in flight. Messages are started and ended in order.
  struct Flight {
    ExchangeOperation operation;
    const MessagePlan* plan = nullptr;
    std::byte* partial =
        nullptr;  ///< partial sums, as `operation.from`, if that is not reduced in place
    std::vector<MPI_Request> sends = std::vector<MPI_Request>(most_messages, MPI_REQUEST_NULL);
    std::vector<Posted> receives = std::vector<Posted>(most_messages);
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
  /// Later steps allocate nothing.
  void reserve();
  bool start_receives(Flight& flight);
  bool start_sends(Flight& flight);
  /// Progresses MPI once and nulls the requests of messages that have arrived or left.
  void test_messages();
  bool end_receives(Flight& flight);
  bool end_sends(Flight& flight);
  /// Where this rank has the message's values: those to send, or those to add received ones to.
  [[nodiscard]] const std::byte* source(const Flight& flight, const Message& message) const;
  /// Where values of the message are stored.
  [[nodiscard]] std::byte* target(const Flight& flight, const Message& message) const;

  std::unique_ptr<MpiGroup> group_;
  Options options_;
  std::shared_ptr<MessageMemory>
      memory_;  ///< kept until the process ends if requests are abandoned
  std::list<CachedPlan> plans_;
  /// A long message has left in the call that sent it, as with TCP.
  bool network_buffers_ = false;
  std::vector<MPI_Request*> tested_;  ///< of test_messages()
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;
  std::vector<Flight> flights_ = std::vector<Flight>(16);  ///< a ring
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace lockstep
