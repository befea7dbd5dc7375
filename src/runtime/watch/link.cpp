#include "link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep::watch {
namespace {

constexpr std::size_t header_size = sizeof(std::uint32_t) + 1;
constexpr std::size_t largest_text = std::size_t{64} << 10;

void set(int descriptor, int level, int option, int value) noexcept {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

void limit_silence(int descriptor, std::chrono::milliseconds limit) noexcept {
  // Probes of an idle connection begin at half of the limit.
  const int seconds = static_cast<int>(limit.count() / 1000);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit.count()));
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, std::max(seconds / 2, 1));
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, std::max(seconds / 4, 1));
}

std::string_view bytes_of(std::span<const RankReport> reports) noexcept {
  return {reinterpret_cast<const char*>(reports.data()), reports.size_bytes()};
}

std::vector<RankReport> reports_in(const std::string& payload) {
  std::vector<RankReport> reports(payload.size() / sizeof(RankReport));
  if (reports.size() * sizeof(RankReport) != payload.size()) return {};
  if (!reports.empty()) std::memcpy(reports.data(), payload.data(), payload.size());
  return reports;
}

std::string to_payload(const RankText& value) {
  return std::string(raw_bytes(value.rank)).append(raw_bytes(value.status)).append(value.text);
}

RankText rank_text_in(const std::string& payload) {
  constexpr std::size_t head = 2 * sizeof(std::int32_t);
  RankText value{.rank = -1, .status = 0, .text = {}};
  if (payload.size() < head) return value;
  std::memcpy(&value.rank, payload.data(), sizeof value.rank);
  std::memcpy(&value.status, payload.data() + sizeof value.rank, sizeof value.status);
  value.text = payload.substr(head);
  return value;
}

std::size_t largest_message(int ranks) noexcept {
  return std::max(largest_text, static_cast<std::size_t>(ranks) * sizeof(RankReport));
}

Bytes32 Link::Direction::next(std::string_view frame) {
  const std::uint64_t place = count++;
  std::string text(raw_bytes(place));
  return hmac(key, text.append(frame));
}

Link::Link(Descriptor descriptor, std::size_t largest, std::chrono::milliseconds silence)
    : descriptor_(std::move(descriptor)), largest_(largest) {
  set(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  limit_silence(descriptor_.get(), silence);
}

void Link::authenticate(const Keys& keys, std::size_t largest) {
  outgoing_ = {.key = keys.outgoing};
  incoming_ = {.key = keys.incoming};
  largest_ = largest;
}

void Link::send(MessageKind kind, std::string_view payload) {
  if (!valid()) return;
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::string frame(raw_bytes(size));
  frame.push_back(static_cast<char>(kind));
  frame.append(payload);
  if (outgoing_) {
    const Bytes32 code = outgoing_->next(frame);
    frame.append(raw_bytes(code));
  }
  out_.append(frame);
  flush();
}

void Link::flush() noexcept {
  while (valid() && !out_.empty()) {
    const ssize_t count = ::send(descriptor_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (count > 0) {
      out_.erase(0, static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      // After an error, receive() returns what has arrived, and then closes the link.
      if (errno != EAGAIN) out_.clear();
      return;
    }
  }
}

std::optional<Message> Link::receive() {
  while (true) {
    if (auto message = parse()) return message;
    if (!valid() || !read()) return std::nullopt;
  }
}

std::size_t Link::largest_frame() const noexcept {
  return header_size + largest_ + (incoming_ ? sizeof(Bytes32) : 0);
}

/// False if there is nothing to read.
bool Link::read() {
  std::array<char, 16384> buffer;
  const std::size_t room = std::min(buffer.size(), largest_frame() - in_.size());
  const ssize_t count = ::recv(descriptor_.get(), buffer.data(), room, 0);
  if (count > 0) {
    in_.append(buffer.data(), static_cast<std::size_t>(count));
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (count == 0) {
    end("the other side closed it");
  } else if (errno != EAGAIN) {
    end(std::strerror(errno));
  }
  return false;
}

std::optional<Message> Link::parse() {
  if (in_.size() < header_size) return std::nullopt;
  std::uint32_t size = 0;
  std::memcpy(&size, in_.data(), sizeof size);
  if (size > largest_) {
    end("a message was too large");
    return std::nullopt;
  }
  const std::size_t frame = header_size + size;
  const std::size_t whole = frame + (incoming_ ? sizeof(Bytes32) : 0);
  if (in_.size() < whole) return std::nullopt;
  if (incoming_) {
    const auto code = value_in<Bytes32>(std::string_view(in_).substr(frame, sizeof(Bytes32)));
    if (!equal(*code, incoming_->next(std::string_view(in_).substr(0, frame)))) {
      end("a message was not authentic");
      return std::nullopt;
    }
  }
  Message message{.kind = static_cast<MessageKind>(in_[sizeof size]),
                  .payload = in_.substr(header_size, size)};
  in_.erase(0, whole);
  return message;
}

void Link::end(std::string reason) {
  reason_ = std::move(reason);
  in_.clear();
  close();
}

pollfd watched(const Link& link) noexcept {
  return {.fd = link.descriptor(),
          .events = static_cast<short>(POLLIN | (link.has_more_to_send() ? POLLOUT : 0)),
          .revents = 0};
}

}  // namespace lockstep::watch
