#include "mailbox.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

namespace lockstep::doctor {
namespace {

/// Polling with a deadline: first only yields, so that measurements do not sleep, then sleeps.
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

Mailbox::Mailbox() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Mailbox::~Mailbox() {
  // Leaked: MPI may still access the buffers of unfinished messages.
  for (auto& message : messages_) {
    if (message->request != MPI_REQUEST_NULL) static_cast<void>(message.release());
  }
}

void Mailbox::note(int code) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  mpi_error_.assign(text.data(), static_cast<std::size_t>(length));
  lost_ = true;
}

bool Mailbox::done_by(MPI_Request& request, Clock::time_point deadline) {
  for (Wait wait(deadline);;) {
    int done = 0;
    const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    note(code);
    if (code != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (!wait.go_on()) return false;
  }
}

void Mailbox::send(int to, int tag, std::string text) {
  std::erase_if(messages_,
                [](const auto& message) { return message->request == MPI_REQUEST_NULL; });
  auto message = std::make_unique<Message>();
  const auto bytes = std::as_bytes(std::span(text));
  message->bytes.assign(bytes.begin(), bytes.end());
  note(MPI_Isend(message->bytes.data(), static_cast<int>(message->bytes.size()), MPI_BYTE, to, tag,
                 MPI_COMM_WORLD, &message->request));
  messages_.push_back(std::move(message));
}

std::optional<std::string> Mailbox::receive(int from, int tag, Clock::time_point deadline) {
  MPI_Message matched = MPI_MESSAGE_NULL;
  MPI_Status status{};
  for (Wait wait(deadline);;) {
    int here = 0;
    const int code = MPI_Improbe(from, tag, MPI_COMM_WORLD, &here, &matched, &status);
    note(code);
    if (code != MPI_SUCCESS) return std::nullopt;
    if (here != 0) break;
    for (const auto& message : messages_) {
      int sent = 0;
      note(MPI_Test(&message->request, &sent, MPI_STATUS_IGNORE));
    }
    if (!wait.go_on()) return std::nullopt;
  }
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  auto message = std::make_unique<Message>();
  message->bytes.resize(static_cast<std::size_t>(count));
  note(MPI_Imrecv(message->bytes.data(), count, MPI_BYTE, &matched, &message->request));
  if (!done_by(message->request, deadline)) {
    lost_ = true;
    messages_.push_back(std::move(message));
    return std::nullopt;
  }
  return std::string(reinterpret_cast<const char*>(message->bytes.data()), message->bytes.size());
}

bool Mailbox::pass(int other, const EchoOptions& options, Message& message, bool sending) {
  const int count = static_cast<int>(message.bytes.size());
  note(sending ? MPI_Isend(message.bytes.data(), count, MPI_BYTE, other, options.tag,
                           MPI_COMM_WORLD, &message.request)
               : MPI_Irecv(message.bytes.data(), count, MPI_BYTE, other, options.tag,
                           MPI_COMM_WORLD, &message.request));
  return done_by(message.request, options.deadline);
}

Mailbox::Echo Mailbox::echo(int other, const EchoOptions& options) {
  auto message = std::make_unique<Message>();
  message->bytes.resize(options.bytes);
  const bool first = rank_ < other;
  Echo result{.seconds = std::chrono::duration<double>(options.deadline - Clock::now()).count()};
  for (int i = 0; i < options.repetitions; ++i) {
    const auto begin = Clock::now();
    if (!pass(other, options, *message, first) || !pass(other, options, *message, !first)) {
      result.error = mpi_error_.empty() ? "no message came through in time"
                                        : std::exchange(mpi_error_, std::string());
      lost_ = true;
      messages_.push_back(std::move(message));
      return result;
    }
    const std::chrono::duration<double> round = Clock::now() - begin;
    result.seconds = std::min(result.seconds, round.count() / 2);
  }
  return result;
}

bool Mailbox::settled(Clock::time_point deadline) {
  if (lost_) return false;
  return std::all_of(messages_.begin(), messages_.end(), [&](const auto& message) {
    return message->request == MPI_REQUEST_NULL || done_by(message->request, deadline);
  });
}

}  // namespace lockstep::doctor
