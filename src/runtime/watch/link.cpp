#include "link.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::watch {
namespace {

constexpr std::size_t header_size = sizeof(std::uint32_t) + 1;
constexpr std::uint32_t largest_payload = std::uint32_t{64} << 20;

void set(int descriptor, int level, int option) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, level, option, &on, sizeof on);
}

void make_own(int descriptor) noexcept {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY);
  // A node that is switched off says nothing; its connection must end some day.
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE);
}

}  // namespace

std::string_view bytes_of(std::span<const RankReport> reports) noexcept {
  return {reinterpret_cast<const char*>(reports.data()), reports.size_bytes()};
}

std::vector<RankReport> reports_in(const std::string& payload) {
  std::vector<RankReport> reports(payload.size() / sizeof(RankReport));
  if (reports.size() * sizeof(RankReport) != payload.size()) return {};
  if (!reports.empty()) std::memcpy(reports.data(), payload.data(), payload.size());
  return reports;
}

Link::Link(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
  make_own(descriptor_.get());
}

Link::Link(const SocketAddress& address)
    : descriptor_(
          ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  if (!descriptor_) return;
  make_own(descriptor_.get());
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(descriptor_.get(), name, address.size) != 0 && errno != EINPROGRESS) close();
}

void Link::send(MessageKind kind, std::string_view payload) {
  if (!valid()) return;
  const auto size = static_cast<std::uint32_t>(payload.size());
  out_.append(reinterpret_cast<const char*>(&size), sizeof size);
  out_.push_back(static_cast<char>(kind));
  out_.append(payload);
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
      // A connection that is not there yet, or has no room; receive() finds out what is broken.
      return;
    }
  }
}

std::vector<Message> Link::receive() {
  std::array<char, 16384> buffer{};
  while (valid()) {
    const ssize_t count = ::recv(descriptor_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      in_.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      if (count == 0 || (errno != EAGAIN && errno != ENOTCONN)) close();
      break;
    }
  }
  std::vector<Message> messages;
  std::size_t at = 0;
  while (in_.size() - at >= header_size) {
    std::uint32_t size = 0;
    std::memcpy(&size, in_.data() + at, sizeof size);
    if (size > largest_payload) {
      close();
      break;
    }
    if (in_.size() - at < header_size + size) break;
    messages.push_back({.kind = static_cast<MessageKind>(in_[at + sizeof size]),
                        .payload = in_.substr(at + header_size, size)});
    at += header_size + size;
  }
  in_.erase(0, at);
  return messages;
}

std::optional<Link> Listener::accept() {
  Descriptor descriptor = socket_.accept();
  if (!descriptor) return std::nullopt;
  return Link(std::move(descriptor));
}

}  // namespace lockstep::watch
