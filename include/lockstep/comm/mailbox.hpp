#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Messages between two ranks, polled until a deadline, since the peer may be dead or unreachable;
/// MPI's collectives would hang then. MPI errors do not throw: see mpi_error().
class Mailbox final {
 public:
  using Clock = std::chrono::steady_clock;
  using Deadline = Clock::time_point;

  /// `comm`, whose errors must return, must outlive it, as must MpiEnvironment.
  explicit Mailbox(MPI_Comm comm);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Starts to send a copy of `bytes`.
  void send(int to, int tag, std::span<const std::byte> bytes);
  /// Whether the peer began to receive `bytes` in time.
  [[nodiscard]] bool deliver(int to, int tag, std::span<const std::byte> bytes, Deadline deadline);

  struct Received {
    int from = 0;
    std::vector<std::byte> bytes;
  };
  /// nullopt if no message arrived in time; `from` may be MPI_ANY_SOURCE.
  [[nodiscard]] std::optional<Received> receive(int from, int tag, Deadline deadline);

  struct Echo {
    double seconds = 0;      ///< one-way time of the fastest repetition
    std::string error = {};  ///< empty: all messages arrived
  };
  struct EchoOptions {
    int tag = 0;
    std::size_t bytes = 1;                      ///< at least 1
    int repetitions = 1;                        ///< at most
    std::chrono::duration<double> enough{1e9};  ///< no repetition begins after so many seconds
    Deadline deadline;
  };
  /// Measures round trips. Both ranks must call it with equal options; both get a result.
  [[nodiscard]] Echo echo(int other, const EchoOptions& options);

  /// Whether all messages are sent by the deadline. If not, MPI cannot be finalized: end the
  /// process instead.
  [[nodiscard]] bool settled(Deadline deadline);

  struct MpiError {
    const char* call;  ///< "MPI_Test"
    std::string text;  ///< the library's
  };
  /// The last failed call; nullopt: none.
  [[nodiscard]] const std::optional<MpiError>& mpi_error() const noexcept { return mpi_error_; }

 private:
  struct Message {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// A message in flight with a copy of `bytes`, after dropping those that are done.
  [[nodiscard]] Message& new_message(std::span<const std::byte> bytes);
  /// True once the request is done; false at the deadline or if MPI reports an error.
  [[nodiscard]] bool done_by(MPI_Request& request, Deadline deadline);
  [[nodiscard]] bool pass(int other, const EchoOptions& options, Message& message, bool sending);
  /// True for MPI_SUCCESS; otherwise records the error.
  bool succeeded(int code, const char* call);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  bool lost_ = false;  ///< MPI failed, or a message is stuck and cannot be cancelled
  std::optional<MpiError> mpi_error_;
  std::vector<std::unique_ptr<Message>> messages_;  ///< in flight
};

}  // namespace lockstep
