#pragma once

#include "authentication.hpp"
#include "lockstep/core/descriptor.hpp"
#include "rank_report.hpp"

#include <poll.h>

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

enum class MessageKind : std::uint8_t {
  challenge,  ///< Challenge: the parent's first message
  hello,      ///< Hello: the child's answer
  welcome,    ///< Welcome: the parent's answer; from here on messages are authenticated
  reports,    ///< RankReports
  goodbye,    ///< the sender leaves in order
  loss,       ///< RankText, up to rank 0 and down to all: this rank is gone
  found,      ///< RankText, likewise: this rank, which was lost, is back
  disabled,   ///< text, likewise: a watchdog failed, so all stop
  verdict     ///< text, downward: the job ends
};
struct Message {
  MessageKind kind;
  std::string payload;
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
  std::string text;
};

/// The bytes of a message that is a plain struct; nothing where a payload has another size.
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
/// Empty where the payload is no such list.
[[nodiscard]] std::vector<RankReport> reports_in(const std::string& payload);
[[nodiscard]] std::string to_payload(const RankText& value);
[[nodiscard]] RankText rank_text_in(const std::string& payload);

/// Bytes of the largest message between the watchdogs of a job of this size.
[[nodiscard]] std::size_t largest_message(int ranks) noexcept;

/// Messages over a connection that never blocks.
class Link final {
 public:
  /// A message with more than `largest` bytes ends the connection; no more than one message is kept
  /// in memory.
  Link(Descriptor descriptor, std::size_t largest);

  /// Messages that follow, in both directions, carry an HMAC of their place, kind and contents. One
  /// that is wrong ends the connection.
  struct Keys {
    Bytes32 outgoing;
    Bytes32 incoming;
  };
  void authenticate(const Keys& keys, std::size_t largest);

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(descriptor_); }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] bool has_more_to_send() const noexcept { return !out_.empty(); }
  /// Why it is not valid any more: "Connection reset by peer".
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  /// Queued, and sent as far as it goes.
  void send(MessageKind kind, std::string_view payload = {});
  /// The next one that has come. Where there is none, valid() tells whether the connection stands.
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
/// For poll(): until something comes, or what is queued can be sent.
[[nodiscard]] pollfd watched(const Link& link) noexcept;

}  // namespace lockstep::watch
