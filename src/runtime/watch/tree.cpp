#include "tree.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;
using State = RankReport::State;
using Kind = Tree::Event::Kind;

void wait_for(std::vector<pollfd>& descriptors, std::chrono::milliseconds longest) {
  static_cast<void>(
      ::poll(descriptors.data(), descriptors.size(), static_cast<int>(longest.count())));
}

UplinkOptions uplink_options(const TreeOptions& options) {
  return {.rank = options.rank,
          .parent = options.parents[static_cast<std::size_t>(options.rank)],
          .secret = options.secret,
          .endpoint = options.parent,
          .from = options.address,
          .connect_limit = options.connect_limit,
          .largest = largest_message(options.size),
          .silence = options.silence};
}

AdmissionOptions admission_options(const TreeOptions& options) {
  std::vector<int> children;
  for (const auto& [rank, port] : options.child_ports) children.push_back(rank);
  return {.rank = options.rank,
          .children = std::move(children),
          .secret = options.secret,
          .largest = largest_message(options.size),
          .silence = options.silence};
}

}  // namespace

void WatchClock::look() {
  const auto now = std::chrono::steady_clock::now();
  now_ +=
      std::min(std::chrono::duration<double>(now - std::exchange(last_, now)).count(), longest_);
}

Tree::Tree(TreeOptions options, std::optional<Listener> listener)
    : options_(std::move(options)), known_(static_cast<std::size_t>(options_.size)) {
  for (int rank = 0; rank < options_.size; ++rank) known(rank).report.rank = rank;
  if (listener) admission_.emplace(admission_options(options_), std::move(*listener));
  if (options_.rank > 0) uplink_.emplace(uplink_options(options_));
}

std::vector<Tree::Event> Tree::exchange(int wake, std::chrono::milliseconds longest,
                                        WatchClock& clock) {
  wait(wake, longest);
  clock.look();
  const double now = clock.now();
  std::vector<Event> events;
  if (uplink_) take_from_above(now, events);
  for (Child& child : children_) take_from_below(child, now, events);
  std::erase_if(children_, [](const Child& child) { return !child.link.valid(); });
  if (admission_) {
    for (Admission::Child& child : admission_->step()) admit(std::move(child), now, events);
  }
  look_after_broken(now, events);
  return events;
}

void Tree::wait(int wake, std::chrono::milliseconds longest) const {
  std::vector<pollfd> descriptors{{.fd = wake, .events = POLLIN, .revents = 0}};
  auto deadline = Clock::time_point::max();
  if (admission_) {
    admission_->add_to(descriptors);
    deadline = admission_->deadline();
  }
  if (uplink_) {
    uplink_->add_to(descriptors);
    deadline = std::min(deadline, uplink_->deadline());
  }
  for (const Child& child : children_) descriptors.push_back(watched(child.link));
  for (const Broken& broken : broken_) {
    broken.probe.add_to(descriptors);
    deadline = std::min(deadline, broken.probe.deadline());
  }
  const auto now = Clock::now();
  if (deadline < now + longest) {
    longest = std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(deadline - now));
  }
  wait_for(descriptors, longest);
}

void Tree::take_from_above(double now, std::vector<Event>& events) {
  using Above = Uplink::State;
  const int parent = parent_of(options_.rank);
  const Above before = uplink_->state();
  if (before == Above::closed) return;
  uplink_->step(now);
  if (before != Above::connected && uplink_->state() == Above::connected) {
    note_connection(parent, parent_outage_ ? &*parent_outage_ : nullptr, now, events);
    parent_outage_.reset();
    report_above(now);  // the parent missed the reports during the outage
  }
  while (const auto message = uplink_->receive()) take_message(*message, parent, now, events);
  State& state = known(parent).report.state;
  if (uplink_->state() == Above::unreachable && !parent_outage_) {
    parent_outage_ = Outage{.since = now};
    if (state == State::running) state = State::unreachable;
    uplink_->step(now);  // if the parent refuses at once, it is lost
  }
  switch (uplink_->state()) {
    case Above::unreachable:
      tell_outage(*parent_outage_,
                  {.kind = Kind::unreachable, .rank = parent, .text = uplink_->reason()}, now,
                  events);
      break;
    case Above::lost:
      lose(parent, uplink_->silent() ? Kind::lost_silently : Kind::lost, events);
      break;
    case Above::closed:
      if (state != State::left) events.push_back({.kind = Kind::never_connected, .rank = parent});
      break;
    case Above::connecting:
    case Above::connected:
      break;
  }
}

void Tree::take_from_below(Child& child, double now, std::vector<Event>& events) {
  child.link.flush();
  while (const auto message = child.link.receive()) {
    take_message(*message, child.rank, now, events);
  }
  if (child.link.valid()) return;
  RankReport& report = known(child.rank).report;
  if (report.state != State::running) return;
  report.state = State::unreachable;
  if (!child.port) return lose(child.rank, Kind::lost, events);
  broken_.push_back({.rank = child.rank,
                     .reason = child.link.reason(),
                     .probe = Probe(*child.port, options_.address, now, options_.silence),
                     .outage = {.since = now}});
}

void Tree::take_message(const Message& message, int from, double now, std::vector<Event>& events) {
  const bool from_above = from < options_.rank;
  switch (message.kind) {
    case MessageKind::reports:
      note(message.payload, now);
      break;
    case MessageKind::goodbye:
      mark_left(from);
      if (from_above) uplink_->close();
      break;
    case MessageKind::loss:
    case MessageKind::found: {
      RankText about = rank_text_in(message.payload);
      if (about.rank < 0 || about.rank >= options_.size) break;
      const auto kind =
          message.kind == MessageKind::loss ? Kind::told_of_loss : Kind::told_of_return;
      events.push_back(
          {.kind = kind, .rank = about.rank, .from = from, .text = std::move(about.text)});
      break;
    }
    case MessageKind::failure: {
      RankText about = rank_text_in(message.payload);
      if (from_above || about.rank < 0 || about.rank >= options_.size) break;
      events.push_back({.kind = Kind::told_of_error,
                        .rank = about.rank,
                        .from = from,
                        .text = std::move(about.text),
                        .status = about.status});
      break;
    }
    case MessageKind::disabled:
      events.push_back({.kind = Kind::told_of_failure, .from = from, .text = message.payload});
      break;
    case MessageKind::verdict:
      if (from_above) events.push_back({.kind = Kind::verdict, .text = message.payload});
      break;
    case MessageKind::knock:
    case MessageKind::challenge:
    case MessageKind::hello:
    case MessageKind::welcome:
      break;
  }
}

void Tree::admit(Admission::Child child, double now, std::vector<Event>& events) {
  std::erase_if(children_, [&](const Child& old) { return old.rank == child.rank; });
  const auto broken = std::ranges::find(broken_, child.rank, &Broken::rank);
  note_connection(child.rank, broken == broken_.end() ? nullptr : &broken->outage, now, events);
  if (broken != broken_.end()) broken_.erase(broken);
  const auto port = peer_with_port(child.link.descriptor(), options_.child_ports.at(child.rank));
  children_.push_back({.rank = child.rank, .link = std::move(child.link), .port = port});
}

void Tree::look_after_broken(double now, std::vector<Event>& events) {
  std::erase_if(broken_, [&](Broken& broken) {
    const Probe::Finding found = broken.probe.step(now);
    if (found == Probe::Finding::gone || found == Probe::Finding::silent) {
      lose(broken.rank, found == Probe::Finding::silent ? Kind::lost_silently : Kind::lost, events);
      return true;
    }
    tell_outage(broken.outage,
                {.kind = Kind::unreachable, .rank = broken.rank, .text = broken.reason}, now,
                events);
    return false;
  });
}

/// Reports an outage once, and only if it lasts for a second.
void Tree::tell_outage(Outage& outage, Event event, double now, std::vector<Event>& events) const {
  if (outage.told || now - outage.since < 1) return;
  outage.told = true;
  events.push_back(std::move(event));
}

/// Marks the rank as running and keeps its last report.
void Tree::note_connection(int rank, const Outage* outage, double now, std::vector<Event>& events) {
  Known& it = known(rank);
  if (it.report.state == State::left) return;
  if (it.report.state == State::lost || (outage != nullptr && outage->told)) {
    events.push_back({.kind = Kind::reachable, .rank = rank});
  }
  if (it.report.state != State::unheard) it.report.idle += now - it.at;
  it.report.silent = 0;
  it.at = now;
  it.report.state = State::running;
}

void Tree::note(const std::string& payload, double now) {
  for (const RankReport& report : reports_in(payload)) {
    if (report.rank < 0 || report.rank >= options_.size || report.rank == options_.rank) continue;
    known(report.rank) = {.report = report, .at = now};
  }
}

/// Also marks all ranks below it as left: their reports no longer arrive, and they leave too.
void Tree::mark_left(int rank) {
  for (Known& each : known_) {
    for (int at = each.report.rank; at > options_.rank || at == rank; at = parent_of(at)) {
      if (at == rank) {
        each.report.state = State::left;
        break;
      }
    }
  }
}

void Tree::lose(int rank, Kind how, std::vector<Event>& events) {
  RankReport& report = known(rank).report;
  if (report.state != State::running && report.state != State::unreachable) return;
  report.state = State::lost;
  events.push_back({.kind = how, .rank = rank});
}

void Tree::report_above(double now) {
  // A stopped peer that has not read the previous report needs no new one.
  if (!uplink_ || uplink_->has_more_to_send()) return;
  std::vector<RankReport> all;
  for (int rank = options_.rank; rank < options_.size; ++rank) {
    if (known(rank).report.state != State::unheard) all.push_back(report(rank, now));
  }
  uplink_->send(MessageKind::reports, bytes_of(all));
}

void Tree::publish(const RankReport& mine, double now) {
  known(options_.rank) = {.report = mine, .at = now};
  report_above(now);
  for (Child& child : children_) {
    if (child.link.has_more_to_send()) continue;
    child.link.send(MessageKind::reports, bytes_of(std::span(&mine, 1)));
  }
}

void Tree::tell_above(MessageKind kind, const std::string& payload) {
  if (uplink_) uplink_->send(kind, payload);
}

void Tree::tell_below(MessageKind kind, const std::string& payload) {
  for (Child& child : children_) child.link.send(kind, payload);
}

void Tree::say_goodbye() {
  // The parent may have admitted this rank already, and would take the end of the connection for a
  // loss.
  if (uplink_) uplink_->finish_handshake(200ms);
  tell_above(MessageKind::goodbye, {});
  tell_below(MessageKind::goodbye, {});
}

void Tree::drain(std::chrono::milliseconds longest) {
  for (const auto end = Clock::now() + longest; Clock::now() < end;) {
    std::vector<pollfd> descriptors;
    for (Child& child : children_) {
      child.link.flush();
      if (child.link.valid() && child.link.has_more_to_send()) {
        descriptors.push_back(watched(child.link));
      }
    }
    if (uplink_) {
      uplink_->flush();
      if (uplink_->has_more_to_send()) uplink_->add_to(descriptors);
    }
    if (descriptors.empty()) return;
    for (pollfd& each : descriptors) each.events = POLLOUT;  // nothing is received here
    wait_for(descriptors, 20ms);
  }
}

RankReport Tree::report(int rank, double now) const {
  const Known& it = known(rank);
  RankReport report = it.report;
  if (rank != options_.rank) {
    report.idle += now - it.at;
    report.silent += now - it.at;
  }
  return report;
}

std::vector<RankReport> Tree::reports(double now) const {
  std::vector<RankReport> all;
  all.reserve(known_.size());
  for (int rank = 0; rank < options_.size; ++rank) all.push_back(report(rank, now));
  return all;
}

}  // namespace lockstep::watch
