#include "lockstep/comm/mailbox.hpp"

#include "backoff.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

/// Ranks may wait for minutes beside those that measure, on the same cores.
constexpr auto nap = std::chrono::microseconds(200);

}  // namespace

Mailbox::Mailbox(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

Mailbox::~Mailbox() {
  // Leaked: MPI may still access the buffers of unfinished messages.
  for (auto& message : messages_) {
    if (message->request != MPI_REQUEST_NULL) static_cast<void>(message.release());
  }
}

bool Mailbox::succeeded(int code, const char* call) {
  if (code == MPI_SUCCESS) return true;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  mpi_error_ = {.call = call, .text = {text.data(), static_cast<std::size_t>(length)}};
  lost_ = true;
  return false;
}

bool Mailbox::done_by(MPI_Request& request, Deadline deadline) {
  for (Backoff backoff(deadline, nap);;) {
    int done = 0;
    if (!succeeded(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test")) return false;
    if (done != 0) return true;
    if (!backoff.pause()) return false;
  }
}

Mailbox::Message& Mailbox::new_message(std::span<const std::byte> bytes) {
  std::erase_if(messages_,
                [](const auto& message) { return message->request == MPI_REQUEST_NULL; });
  Message& message = *messages_.emplace_back(std::make_unique<Message>());
  message.bytes.assign(bytes.begin(), bytes.end());
  return message;
}

void Mailbox::send(int to, int tag, std::span<const std::byte> bytes) {
  Message& message = new_message(bytes);
  succeeded(MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, to,
                      tag, comm_, &message.request),
            "MPI_Isend");
}

bool Mailbox::deliver(int to, int tag, std::span<const std::byte> bytes, Deadline deadline) {
  Message& message = new_message(bytes);
  // A synchronous send completes once the peer has begun to receive it.
  if (!succeeded(MPI_Issend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE,
                            to, tag, comm_, &message.request),
                 "MPI_Issend") ||
      !done_by(message.request, deadline)) {
    lost_ = true;
    return false;
  }
  return true;
}

std::optional<Mailbox::Received> Mailbox::receive(int from, int tag, Deadline deadline) {
  MPI_Message matched = MPI_MESSAGE_NULL;
  MPI_Status status{};
  for (Backoff backoff(deadline, nap);;) {
    int here = 0;
    if (!succeeded(MPI_Improbe(from, tag, comm_, &here, &matched, &status), "MPI_Improbe")) {
      return std::nullopt;
    }
    if (here != 0) break;
    for (const auto& message : messages_) {
      int sent = 0;
      succeeded(MPI_Test(&message->request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
    }
    if (!backoff.pause()) return std::nullopt;
  }
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  auto message = std::make_unique<Message>();
  message->bytes.resize(static_cast<std::size_t>(count));
  if (!succeeded(MPI_Imrecv(message->bytes.data(), count, MPI_BYTE, &matched, &message->request),
                 "MPI_Imrecv") ||
      !done_by(message->request, deadline)) {
    lost_ = true;
    messages_.push_back(std::move(message));
    return std::nullopt;
  }
  return Received{.from = status.MPI_SOURCE, .bytes = std::move(message->bytes)};
}

bool Mailbox::pass(int other, const EchoOptions& options, Message& message, bool sending) {
  const int count = static_cast<int>(message.bytes.size());
  const bool begun = sending ? succeeded(MPI_Isend(message.bytes.data(), count, MPI_BYTE, other,
                                                   options.tag, comm_, &message.request),
                                         "MPI_Isend")
                             : succeeded(MPI_Irecv(message.bytes.data(), count, MPI_BYTE, other,
                                                   options.tag, comm_, &message.request),
                                         "MPI_Irecv");
  return begun && done_by(message.request, options.deadline);
}

Mailbox::Echo Mailbox::echo(int other, const EchoOptions& options) {
  auto message = std::make_unique<Message>();
  message->bytes.resize(options.bytes);
  const bool first = rank_ < other;
  Echo result{.seconds = std::chrono::duration<double>(options.deadline - Clock::now()).count()};
  const auto first_begin = Clock::now();
  for (int i = 0;; ++i) {
    const auto begin = Clock::now();
    // The lower rank says in the first byte which repetition is the last.
    if (first) {
      message->bytes.front() =
          std::byte{i + 1 >= options.repetitions || begin - first_begin >= options.enough};
    }
    if (!pass(other, options, *message, first) || !pass(other, options, *message, !first)) {
      const auto error = std::exchange(mpi_error_, std::nullopt);
      result.error = error ? error->text : "no message came through in time";
      lost_ = true;
      messages_.push_back(std::move(message));
      return result;
    }
    const std::chrono::duration<double> round = Clock::now() - begin;
    result.seconds = std::min(result.seconds, round.count() / 2);
    if (message->bytes.front() != std::byte{0}) return result;
  }
}

bool Mailbox::settled(Deadline deadline) {
  if (lost_) return false;
  return std::all_of(messages_.begin(), messages_.end(), [&](const auto& message) {
    return message->request == MPI_REQUEST_NULL || done_by(message->request, deadline);
  });
}

}  // namespace lockstep
