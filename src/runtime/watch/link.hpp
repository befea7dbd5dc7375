#pragma once

#include "authentication.hpp"
#include "lockstep/core/descriptor.hpp"
#include "rank_report.hpp"

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::watch {

/// How long a node may be silent. A node that loses power neither closes nor refuses connections.
/// Its ranks are lost after the sum of both; shorter stalls of the network have no effect.
struct SilenceLimits {
  /// A connection without acknowledgements for this long breaks, even when idle.
  std::chrono::milliseconds connection = std::chrono::seconds(20);
  /// After that, a rank whose host accepts no connection for this long is lost.
  std::chrono::milliseconds host = std::chrono::seconds(10);

  [[nodiscard]] double host_seconds() const noexcept {
    return std::chrono::duration<double>(host).count();
  }
};

/// Breaks this TCP connection after `limit` without acknowledgements.
void limit_silence(int descriptor, std::chrono::milliseconds limit) noexcept;

enum class MessageKind : std::uint8_t {
  knock,      ///< Knock: the child's first message, sent with the connection
  challenge,  ///< Challenge: the parent's answer
  hello,      ///< Hello: the child's answer
  welcome,    ///< Welcome: the parent's answer; from here on messages are authenticated
  reports,    ///< RankReports
  goodbye,    ///< the sender leaves in order
  loss,       ///< RankText, up to rank 0 and down to all: this rank is gone
  found,      ///< RankText, up and down: this rank, which was lost, is back
  failure,    ///< RankText, up to rank 0: this rank cannot go on
  disabled,   ///< text, up and down: a watchdog failed, so all stop
  verdict     ///< text, down: why the job ends
};
struct Message {
  MessageKind kind;
  std::string payload;
};

/// Tells a child from a stranger before the parent spends anything on the connection. Valid once,
/// which an eavesdropper may use up: the child then connects again.
struct Knock {
  std::int32_t child = 0;
  std::int32_t parent = 0;
  std::uint64_t count = 0;  ///< of the child's connections so far; grows
  Bytes32 proof{};
};
struct Challenge {
  Bytes32 nonce{};
};
struct Hello {
  std::int32_t child = 0;
  std::int32_t parent = 0;
  Bytes32 nonce{};
  Bytes32 proof{};
};
struct Welcome {
  Bytes32 proof{};
};
struct RankText {
  std::int32_t rank = 0;
  std::int32_t status = 0;  ///< of a failure: its exit status
  std::string text;
};

/// The bytes of a plain struct as payload, and the inverse; nullopt if the size differs.
template <typename T>
[[nodiscard]] std::string_view raw_bytes(const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <typename T>
[[nodiscard]] std::optional<T> value_in(std::string_view payload) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  if (payload.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}
[[nodiscard]] std::string_view bytes_of(std::span<const RankReport> reports) noexcept;
/// Empty if the payload is not a list of reports.
[[nodiscard]] std::vector<RankReport> reports_in(const std::string& payload);
[[nodiscard]] std::string to_payload(const RankText& value);
[[nodiscard]] RankText rank_text_in(const std::string& payload);

/// Maximum payload in bytes between the watchdogs of a job with this number of ranks.
[[nodiscard]] std::size_t largest_message(int ranks) noexcept;

/// Messages over a nonblocking connection.
class Link final {
 public:
  /// A received message with more than `largest` bytes ends the connection. Buffers at most one
  /// received message. Breaks after `silence` without acknowledgements.
  Link(Descriptor descriptor, std::size_t largest,
       std::chrono::milliseconds silence = SilenceLimits{}.connection);

  /// From now on messages in both directions carry an HMAC of their sequence number, kind and
  /// contents. A wrong HMAC ends the connection.
  struct Keys {
    Bytes32 outgoing;
    Bytes32 incoming;
  };
  void authenticate(const Keys& keys, std::size_t largest);

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(descriptor_); }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] bool has_more_to_send() const noexcept { return !out_.empty(); }
  /// Why it is no longer valid: "Connection reset by peer".
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  /// Queues the message and sends what the socket accepts.
  void send(MessageKind kind, std::string_view payload = {});
  /// The next received message. If nullopt, valid() tells whether the connection is still open.
  [[nodiscard]] std::optional<Message> receive();
  void flush() noexcept;
  void close() noexcept { descriptor_.reset(); }

 private:
  struct Direction {
    Bytes32 key{};
    std::uint64_t count = 0;  ///< messages so far
    [[nodiscard]] Bytes32 next(std::string_view frame);
  };

  [[nodiscard]] std::size_t largest_frame() const noexcept;
  [[nodiscard]] bool read();
  [[nodiscard]] std::optional<Message> parse();
  void end(std::string reason);

  Descriptor descriptor_;
  std::size_t largest_;
  std::optional<Direction> outgoing_;
  std::optional<Direction> incoming_;
  std::string in_;
  std::string out_;
  std::string reason_;
};
/// For poll(): ready when data arrive or queued data can be sent.
[[nodiscard]] pollfd watched(const Link& link) noexcept;

}  // namespace lockstep::watch
