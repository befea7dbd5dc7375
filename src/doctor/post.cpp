#include "post.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

namespace lockstep::doctor {
namespace {

/// A rank that waits for long leaves its core to others; one that measures must not sleep.
class Wait final {
 public:
  explicit Wait(Clock::time_point deadline) : deadline_(deadline) {}
  /// False at the deadline.
  [[nodiscard]] bool go_on() {
    constexpr int eager_looks = 2000;
    constexpr auto nap = std::chrono::microseconds(200);
    if (++looks_ < eager_looks) {
      sched_yield();
      return true;
    }
    if (Clock::now() > deadline_) return false;
    std::this_thread::sleep_for(nap);
    return true;
  }

 private:
  Clock::time_point deadline_;
  int looks_ = 0;
};

}  // namespace

Post::Post() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Post::~Post() {
  // MPI may still read what was never taken.
  for (auto& letter : letters_) {
    if (letter->request != MPI_REQUEST_NULL) static_cast<void>(letter.release());
  }
}

void Post::note(int code) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  mpi_error_.assign(text.data(), static_cast<std::size_t>(length));
  lost_ = true;
}

bool Post::done_by(MPI_Request& request, Clock::time_point deadline) {
  for (Wait wait(deadline);;) {
    int done = 0;
    const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    note(code);
    if (code != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (!wait.go_on()) return false;
  }
}

void Post::send(int to, int tag, std::string text) {
  std::erase_if(letters_, [](const auto& letter) { return letter->request == MPI_REQUEST_NULL; });
  auto letter = std::make_unique<Letter>();
  const auto bytes = std::as_bytes(std::span(text));
  letter->bytes.assign(bytes.begin(), bytes.end());
  note(MPI_Isend(letter->bytes.data(), static_cast<int>(letter->bytes.size()), MPI_BYTE, to, tag,
                 MPI_COMM_WORLD, &letter->request));
  letters_.push_back(std::move(letter));
}

std::optional<std::string> Post::receive(int from, int tag, Clock::time_point deadline) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  for (Wait wait(deadline);;) {
    int here = 0;
    const int code = MPI_Improbe(from, tag, MPI_COMM_WORLD, &here, &message, &status);
    note(code);
    if (code != MPI_SUCCESS) return std::nullopt;
    if (here != 0) break;
    for (const auto& letter : letters_) {
      int sent = 0;
      note(MPI_Test(&letter->request, &sent, MPI_STATUS_IGNORE));
    }
    if (!wait.go_on()) return std::nullopt;
  }
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  auto letter = std::make_unique<Letter>();
  letter->bytes.resize(static_cast<std::size_t>(count));
  note(MPI_Imrecv(letter->bytes.data(), count, MPI_BYTE, &message, &letter->request));
  if (!done_by(letter->request, deadline)) {
    lost_ = true;
    letters_.push_back(std::move(letter));
    return std::nullopt;
  }
  return std::string(reinterpret_cast<const char*>(letter->bytes.data()), letter->bytes.size());
}

bool Post::pass(int other, const EchoOptions& options, Letter& letter, bool sending) {
  const int count = static_cast<int>(letter.bytes.size());
  note(sending ? MPI_Isend(letter.bytes.data(), count, MPI_BYTE, other, options.tag, MPI_COMM_WORLD,
                           &letter.request)
               : MPI_Irecv(letter.bytes.data(), count, MPI_BYTE, other, options.tag, MPI_COMM_WORLD,
                           &letter.request));
  return done_by(letter.request, options.deadline);
}

Post::Echo Post::echo(int other, const EchoOptions& options) {
  auto letter = std::make_unique<Letter>();
  letter->bytes.resize(options.bytes);
  const bool first = rank_ < other;
  Echo result{.seconds = std::chrono::duration<double>(options.deadline - Clock::now()).count()};
  for (int i = 0; i < options.repetitions; ++i) {
    const auto begin = Clock::now();
    if (!pass(other, options, *letter, first) || !pass(other, options, *letter, !first)) {
      result.error = mpi_error_.empty() ? "no message came through in time"
                                        : std::exchange(mpi_error_, std::string());
      lost_ = true;
      letters_.push_back(std::move(letter));
      return result;
    }
    const std::chrono::duration<double> round = Clock::now() - begin;
    result.seconds = std::min(result.seconds, round.count() / 2);
  }
  return result;
}

bool Post::settled(Clock::time_point deadline) {
  if (lost_) return false;
  return std::all_of(letters_.begin(), letters_.end(), [&](const auto& letter) {
    return letter->request == MPI_REQUEST_NULL || done_by(letter->request, deadline);
  });
}

}  // namespace lockstep::doctor
