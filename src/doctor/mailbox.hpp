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

/// Messages between two ranks that are looked for until a deadline and never waited on, since the
/// other may be dead or out of reach: MPI's collectives would hang there. On MPI_COMM_WORLD, for
/// making another communicator is a collective too. MpiEnvironment outlives it.
class Mailbox final {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  void send(int to, int tag, std::string text);
  /// Empty where nothing came in time.
  [[nodiscard]] std::optional<std::string> receive(int from, int tag, Clock::time_point deadline);

  struct Echo {
    double seconds = 0;      ///< one way, of the quickest repetition
    std::string error = {};  ///< empty: the other answered each time
  };
  struct EchoOptions {
    int tag = 0;
    std::size_t bytes = 1;
    int repetitions = 1;
    Clock::time_point deadline;
  };
  /// Messages there and back; both ranks call it alike, and both are told.
  [[nodiscard]] Echo echo(int other, const EchoOptions& options);

  /// Whether all messages that were sent have left by the deadline. Where they have not, MPI can
  /// not be finalized: end the process instead.
  [[nodiscard]] bool settled(Clock::time_point deadline);

 private:
  struct Message {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// True once the request is done; false at the deadline, or where MPI reports an error.
  [[nodiscard]] bool done_by(MPI_Request& request, Clock::time_point deadline);
  [[nodiscard]] bool pass(int other, const EchoOptions& options, Message& message, bool sending);
  void note(int code);

  int rank_ = 0;
  int size_ = 1;
  bool lost_ = false;      ///< a message never left, or a reception cannot be taken back
  std::string mpi_error_;  ///< the last one
  std::vector<std::unique_ptr<Message>> messages_;  ///< on their way
};

}  // namespace lockstep::doctor
