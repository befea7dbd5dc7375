#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::doctor {

using Clock = std::chrono::steady_clock;

/// Messages between two ranks, polled until a deadline, since the peer may be dead or unreachable;
/// MPI's collectives would hang then. Uses MPI_COMM_WORLD, since creating another communicator is
/// collective too. MpiEnvironment must outlive it.
class Mailbox final {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  void send(int to, int tag, std::string text);
  /// nullopt if no message arrived in time.
  [[nodiscard]] std::optional<std::string> receive(int from, int tag, Clock::time_point deadline);

  struct Echo {
    double seconds = 0;      ///< one-way time of the fastest repetition
    std::string error = {};  ///< empty: all messages arrived
  };
  struct EchoOptions {
    int tag = 0;
    std::size_t bytes = 1;
    int repetitions = 1;
    Clock::time_point deadline;
  };
  /// Measures round trips. Both ranks must call it with equal options; both get a result.
  [[nodiscard]] Echo echo(int other, const EchoOptions& options);

  /// Whether all messages are sent by the deadline. If not, MPI cannot be finalized: end the
  /// process instead.
  [[nodiscard]] bool settled(Clock::time_point deadline);

 private:
  struct Message {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// True once the request is done; false at the deadline or if MPI reports an error.
  [[nodiscard]] bool done_by(MPI_Request& request, Clock::time_point deadline);
  [[nodiscard]] bool pass(int other, const EchoOptions& options, Message& message, bool sending);
  void note(int code);

  int rank_ = 0;
  int size_ = 1;
  bool lost_ = false;      ///< MPI failed, or a message is stuck and cannot be cancelled
  std::string mpi_error_;  ///< the last error
  std::vector<std::unique_ptr<Message>> messages_;  ///< in flight
};

}  // namespace lockstep::doctor
