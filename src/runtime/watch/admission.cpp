#include "admission.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds hello_limit = 5s;
/// The limit while other connections cannot be accepted.
constexpr std::chrono::milliseconds hello_limit_when_full = 500ms;
/// Pause after a temporary lack of descriptors or memory.
constexpr auto pause = 500ms;
/// Pending connections in addition to the children's, such as probes by the parent.
constexpr std::size_t others = 8;
/// Number of file descriptors reserved for the rank itself.
constexpr rlim_t reserve = 32;

bool may_take_another(int listener) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  // A new descriptor gets the smallest free number.
  const Descriptor next(::fcntl(listener, F_DUPFD_CLOEXEC, 0));
  return next && (limit.rlim_cur == RLIM_INFINITY ||
                  static_cast<rlim_t>(next.get()) + reserve < limit.rlim_cur);
}

}  // namespace

Listener::Listener(const std::optional<SocketAddress>& address)
    : socket_("start with --watchdog-seconds 0 to do without its watchdog", address) {}

Admission::Admission(AdmissionOptions options, Listener listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      most_(options_.children.size() + others) {}

std::vector<Admission::Child> Admission::step() {
  std::vector<Child> children;
  for (Pending& pending : pending_) {
    if (const auto rank = greet(pending)) children.push_back({*rank, std::move(pending.link)});
  }
  const auto now = SteadyClock::now();
  const auto limit = time_limit();
  std::erase_if(pending_, [&](const Pending& pending) {
    return !pending.link.valid() || now - pending.since >= limit;
  });
  accept();
  return children;
}

std::chrono::milliseconds Admission::time_limit() const noexcept {
  return full() || paused() ? hello_limit_when_full : hello_limit;
}

void Admission::accept() {
  while (!full() && !paused()) {
    if (!may_take_another(listener_.descriptor())) {
      paused_until_ = SteadyClock::now() + pause;
      return;
    }
    Descriptor connection = listener_.accept();
    if (!connection) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN) paused_until_ = SteadyClock::now() + pause;
      return;
    }
    Pending pending{.link = Link(std::move(connection), sizeof(Hello), options_.silence.connection),
                    .nonce = random_bytes(),
                    .since = SteadyClock::now()};
    const Challenge challenge{.nonce = pending.nonce};
    pending.link.send(MessageKind::challenge, raw_bytes(challenge));
    pending_.push_back(std::move(pending));
  }
}

/// The child's rank once it is authenticated.
std::optional<int> Admission::greet(Pending& pending) {
  pending.link.flush();
  const auto message = pending.link.receive();
  if (!message) return std::nullopt;
  const auto hello = value_in<Hello>(message->payload);
  if (message->kind == MessageKind::hello && hello && hello->parent == options_.rank &&
      std::ranges::count(options_.children, hello->child) > 0) {
    const Session session{.child = hello->child,
                          .parent = hello->parent,
                          .child_nonce = hello->nonce,
                          .parent_nonce = pending.nonce};
    if (equal(hello->proof, derive(options_.secret, Purpose::child_proof, session))) {
      const Welcome welcome{.proof = derive(options_.secret, Purpose::parent_proof, session)};
      pending.link.send(MessageKind::welcome, raw_bytes(welcome));
      pending.link.authenticate({.outgoing = derive(options_.secret, Purpose::parent_key, session),
                                 .incoming = derive(options_.secret, Purpose::child_key, session)},
                                options_.largest);
      return hello->child;
    }
  }
  pending.link.close();
  return std::nullopt;
}

void Admission::add_to(std::vector<pollfd>& descriptors) const {
  if (!full() && !paused()) {
    descriptors.push_back({.fd = listener_.descriptor(), .events = POLLIN, .revents = 0});
  }
  for (const Pending& pending : pending_) descriptors.push_back(watched(pending.link));
}

SteadyClock::time_point Admission::deadline() const noexcept {
  auto next = SteadyClock::time_point::max();
  if (!pending_.empty()) next = pending_.front().since + time_limit();
  if (paused()) next = std::min(next, paused_until_);
  return next;
}

}  // namespace lockstep::watch
