#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/runtime/sockets.hpp"
#include "rank_report.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::watch {

enum class MessageKind : std::uint8_t {
  hello,    ///< Hello: the first one from below
  reports,  ///< RankReports
  goodbye,  ///< the sender leaves in order
  loss,     ///< text, up to rank 0 and down to all: somebody is gone
  verdict   ///< text, downward: the job ends
};
struct Message {
  MessageKind kind;
  std::string payload;
};
/// Keeps out who is none of this job, or meant another rank of it.
struct Hello {
  std::uint64_t job = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};

[[nodiscard]] std::string_view bytes_of(std::span<const RankReport> reports) noexcept;
/// Empty where the payload is no such list.
[[nodiscard]] std::vector<RankReport> reports_in(const std::string& payload);

/// Messages over a connection that never blocks.
class Link final {
 public:
  explicit Link(Descriptor descriptor);
  /// Begins to connect; valid() is false where that failed at once.
  explicit Link(const SocketAddress& address);

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(descriptor_); }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] bool has_more_to_send() const noexcept { return !out_.empty(); }

  /// Queued, and sent as far as it goes.
  void send(MessageKind kind, std::string_view payload = {});
  /// What has come since; afterwards valid() tells whether the connection still stands.
  [[nodiscard]] std::vector<Message> receive();
  void flush() noexcept;
  void close() noexcept { descriptor_.reset(); }

 private:
  Descriptor descriptor_;
  std::string in_;
  std::string out_;
};

/// Where the links of the ranks below come in.
class Listener final {
 public:
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] int port() const noexcept { return socket_.port(); }
  [[nodiscard]] std::optional<Link> accept();

 private:
  ListeningSocket socket_{"start with --watchdog-seconds 0 to do without its watchdog"};
};

}  // namespace lockstep::watch
