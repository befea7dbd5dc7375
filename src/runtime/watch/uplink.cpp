#include "uplink.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;

/// Limit for an answer on an address that has never worked: another program may listen there.
constexpr auto answer_limit = 10s;

}  // namespace

Uplink::Uplink(UplinkOptions options)
    : options_(std::move(options)),
      dialer_(options_.from),
      first_end_(SteadyClock::now() + options_.connect_limit) {
  for (const std::string& number : options_.endpoint.addresses) {
    if (auto address = parse_address(number, options_.endpoint.port))
      addresses_.push_back(*address);
  }
  dial();
}

/// Dials the next address, or the one that has worked before.
void Uplink::dial() {
  link_.reset();
  greeted_ = false;
  attempt_end_ = SteadyClock::time_point::max();
  if (addresses_.empty()) return;
  if (state_ == State::connecting) ++next_address_;
  dialer_.dial(addresses_[(next_address_ - 1) % addresses_.size()]);
}

void Uplink::step(double now) {
  now_ = now;
  if (state_ == State::closed) return;
  if (link_) {
    link_->flush();
    if (state_ != State::connected) shake_hands();
    const bool late = state_ == State::connecting && SteadyClock::now() > attempt_end_;
    // While connected, receive() first returns the messages that arrived before the end.
    if (link_ && (late || (!link_->valid() && state_ != State::connected))) dial();
  }
  switch (dialer_.step()) {
    case Dialer::Outcome::waiting:
      break;
    case Dialer::Outcome::connected:
      heard_ = now;
      link_.emplace(dialer_.take(), sizeof(Challenge), options_.silence.connection);
      attempt_end_ = SteadyClock::now() + answer_limit;
      knock();
      break;
    case Dialer::Outcome::refused:
      if (state_ == State::unreachable) {
        state_ = State::lost;
        silent_ = false;
      }
      dial();
      break;
    case Dialer::Outcome::failed:
      if (state_ == State::unreachable && now - heard_ > options_.silence.host_seconds()) {
        state_ = State::lost;
        silent_ = true;
      }
      dial();
      break;
  }
  if (state_ == State::connecting && SteadyClock::now() > first_end_) close();
}

void Uplink::knock() {
  ++knocks_;
  const Knock knock{.child = options_.rank,
                    .parent = options_.parent,
                    .count = knocks_,
                    .proof = knock_proof(options_.secret, options_.rank, options_.parent, knocks_)};
  link_->send(MessageKind::knock, raw_bytes(knock));
}

/// Keeps a connection that the parent's system has accepted, however long the parent is stopped.
void Uplink::shake_hands() {
  heard_ = now_;
  while (const auto message = link_->receive()) {
    const auto challenge = value_in<Challenge>(message->payload);
    const auto welcome = value_in<Welcome>(message->payload);
    if (!greeted_ && message->kind == MessageKind::challenge && challenge) {
      session_ = {.child = options_.rank,
                  .parent = options_.parent,
                  .child_nonce = random_bytes(),
                  .parent_nonce = challenge->nonce};
      const Hello hello{.child = session_.child,
                        .parent = session_.parent,
                        .nonce = session_.child_nonce,
                        .proof = derive(options_.secret, Purpose::child_proof, session_)};
      greeted_ = true;
      link_->send(MessageKind::hello, raw_bytes(hello));
    } else if (greeted_ && message->kind == MessageKind::welcome && welcome &&
               equal(welcome->proof, derive(options_.secret, Purpose::parent_proof, session_))) {
      link_->authenticate({.outgoing = derive(options_.secret, Purpose::child_key, session_),
                           .incoming = derive(options_.secret, Purpose::parent_key, session_)},
                          options_.largest);
      state_ = State::connected;
      dialer_.forget_attempts();
      return;
    } else {
      link_->close();
    }
  }
}

void Uplink::finish_handshake(std::chrono::milliseconds longest) {
  for (const auto end = SteadyClock::now() + longest;
       state_ == State::connecting && greeted_ && link_->valid() && SteadyClock::now() < end;) {
    pollfd answer = watched(*link_);
    static_cast<void>(::poll(&answer, 1, 20));
    shake_hands();
  }
}

std::optional<Message> Uplink::receive() {
  if (state_ != State::connected) return std::nullopt;
  auto message = link_->receive();
  if (!message && !link_->valid()) {
    reason_ = link_->reason();
    heard_ = now_;
    state_ = State::unreachable;
    dial();
  }
  return message;
}

void Uplink::send(MessageKind kind, std::string_view payload) {
  if (state_ == State::connected) link_->send(kind, payload);
}

void Uplink::flush() noexcept {
  if (link_) link_->flush();
}

bool Uplink::has_more_to_send() const noexcept {
  return state_ == State::connected && link_->valid() && link_->has_more_to_send();
}

void Uplink::close() noexcept {
  state_ = State::closed;
  link_.reset();
  dialer_.stop();
}

void Uplink::add_to(std::vector<pollfd>& descriptors) const {
  dialer_.add_to(descriptors);
  if (link_ && link_->valid()) descriptors.push_back(watched(*link_));
}

SteadyClock::time_point Uplink::deadline() const noexcept {
  return state_ == State::connecting ? std::min(dialer_.deadline(), attempt_end_)
                                     : dialer_.deadline();
}

}  // namespace lockstep::watch
