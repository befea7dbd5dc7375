#include "admission.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;

/// For a stranger's knock, and for a caller's hello.
constexpr std::chrono::milliseconds answer_limit = 5s;
/// Pause after a temporary lack of descriptors or memory.
constexpr auto pause = 500ms;
constexpr std::size_t most_strangers = 64;
/// Connections accepted before the watchdog continues its other work.
constexpr int most_at_once = 512;
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

/// Closes the connection at once, so that the system keeps nothing of it.
void reset(Link& link) noexcept {
  if (!link.valid()) return;
  const linger none{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(link.descriptor(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  link.close();
}

}  // namespace

Listener::Listener(const std::optional<SocketAddress>& address)
    : socket_("start with --watchdog-seconds 0 to do without its watchdog", address) {}

Admission::Admission(AdmissionOptions options, Listener listener)
    : options_(std::move(options)), listener_(std::move(listener)) {}

std::vector<Admission::Child> Admission::step() {
  for (Stranger& stranger : strangers_) hear(stranger);
  accept();
  const auto now = SteadyClock::now();
  std::erase_if(strangers_, [&](Stranger& stranger) {
    if (now - stranger.since >= answer_limit) reset(stranger.link);
    return !stranger.link.valid();
  });
  std::vector<Child> children;
  std::erase_if(callers_, [&](Caller& caller) {
    if (greet(caller)) {
      children.push_back({caller.rank, std::move(caller.link)});
      return true;
    }
    return !caller.link.valid() || now - caller.since >= answer_limit;
  });
  return children;
}

void Admission::accept() {
  for (int count = 0; count < most_at_once && !paused(); ++count) {
    while (!strangers_.empty() && !may_take_another(listener_.descriptor())) drop_oldest();
    if (strangers_.empty() && !may_take_another(listener_.descriptor())) {
      paused_until_ = SteadyClock::now() + pause;
      return;
    }
    Descriptor connection = listener_.accept();
    if (!connection) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN) paused_until_ = SteadyClock::now() + pause;
      return;
    }
    strangers_.push_back(
        {.link = Link(std::move(connection), sizeof(Hello), options_.silence.connection),
         .since = SteadyClock::now()});
    hear(strangers_.back());
    if (!strangers_.back().link.valid()) strangers_.pop_back();
    if (strangers_.size() > most_strangers) drop_oldest();
  }
}

void Admission::drop_oldest() {
  hear(strangers_.front());  // its knock may have arrived since
  reset(strangers_.front().link);
  strangers_.pop_front();
}

/// Makes a stranger that has knocked a caller, and ends one that has said something else.
void Admission::hear(Stranger& stranger) {
  const auto message = stranger.link.receive();
  if (!message) return;
  const auto knock = value_in<Knock>(message->payload);
  if (message->kind != MessageKind::knock || !knock || knock->parent != options_.rank ||
      std::ranges::count(options_.children, knock->child) == 0 ||
      knock->count <= knocks_[knock->child] ||
      !equal(knock->proof,
             knock_proof(options_.secret, knock->child, options_.rank, knock->count))) {
    return reset(stranger.link);
  }
  knocks_[knock->child] = knock->count;
  Caller caller{.rank = knock->child,
                .link = std::move(stranger.link),
                .nonce = random_bytes(),
                .since = SteadyClock::now()};
  const Challenge challenge{.nonce = caller.nonce};
  caller.link.send(MessageKind::challenge, raw_bytes(challenge));
  std::erase_if(callers_, [&](const Caller& old) { return old.rank == caller.rank; });
  callers_.push_back(std::move(caller));
}

/// Whether the caller has proved to be this child.
bool Admission::greet(Caller& caller) {
  caller.link.flush();
  const auto message = caller.link.receive();
  if (!message) return false;
  const auto hello = value_in<Hello>(message->payload);
  if (message->kind == MessageKind::hello && hello && hello->parent == options_.rank &&
      hello->child == caller.rank) {
    const Session session{.child = hello->child,
                          .parent = hello->parent,
                          .child_nonce = hello->nonce,
                          .parent_nonce = caller.nonce};
    if (equal(hello->proof, derive(options_.secret, Purpose::child_proof, session))) {
      const Welcome welcome{.proof = derive(options_.secret, Purpose::parent_proof, session)};
      caller.link.send(MessageKind::welcome, raw_bytes(welcome));
      caller.link.authenticate({.outgoing = derive(options_.secret, Purpose::parent_key, session),
                                .incoming = derive(options_.secret, Purpose::child_key, session)},
                               options_.largest);
      return true;
    }
  }
  caller.link.close();
  return false;
}

void Admission::add_to(std::vector<pollfd>& descriptors) const {
  if (!paused()) {
    descriptors.push_back({.fd = listener_.descriptor(), .events = POLLIN, .revents = 0});
  }
  for (const Stranger& stranger : strangers_) descriptors.push_back(watched(stranger.link));
  for (const Caller& caller : callers_) descriptors.push_back(watched(caller.link));
}

SteadyClock::time_point Admission::deadline() const noexcept {
  auto next = paused() ? paused_until_ : SteadyClock::time_point::max();
  if (!strangers_.empty()) next = std::min(next, strangers_.front().since + answer_limit);
  for (const Caller& caller : callers_) next = std::min(next, caller.since + answer_limit);
  return next;
}

}  // namespace lockstep::watch
