#include "tree.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;
using State = RankReport::State;

constexpr auto attempt_limit = 3s;

void wait_for(std::vector<pollfd>& descriptors, std::chrono::milliseconds longest) {
  static_cast<void>(
      ::poll(descriptors.data(), descriptors.size(), static_cast<int>(longest.count())));
}

pollfd watched(const Link& link) {
  return {.fd = link.descriptor(),
          .events = static_cast<short>(POLLIN | (link.has_more_to_send() ? POLLOUT : 0)),
          .revents = 0};
}

}  // namespace

void WatchClock::look() {
  const auto now = std::chrono::steady_clock::now();
  now_ +=
      std::min(std::chrono::duration<double>(now - std::exchange(last_, now)).count(), longest_);
}

Tree::Tree(TreeOptions options, std::optional<Listener> listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      known_(static_cast<std::size_t>(options_.size)),
      attempts_end_(Clock::now() + options_.connect_limit) {
  for (int rank = 0; rank < options_.size; ++rank) known(rank).report.rank = rank;
  if (options_.rank > 0) connect();
}

/// To the next address of the rank above.
void Tree::connect() {
  above_.reset();
  attempt_end_ = Clock::now() + attempt_limit;
  const auto& addresses = options_.parent.addresses;
  if (addresses.empty()) return;
  const std::string& number = addresses[next_address_++ % addresses.size()];
  const auto address = parse_address(number, options_.parent.port);
  if (!address) return;
  above_.emplace(*address);
  const Hello hello{
      .job = options_.job, .from = options_.rank, .to = parent_of(options_.rank, options_.fan_out)};
  above_->send(MessageKind::hello, {reinterpret_cast<const char*>(&hello), sizeof hello});
}

std::vector<Tree::Event> Tree::exchange(int wake, std::chrono::milliseconds longest, double now) {
  std::vector<pollfd> descriptors{{.fd = wake, .events = POLLIN, .revents = 0}};
  if (listener_) {
    descriptors.push_back({.fd = listener_->descriptor(), .events = POLLIN, .revents = 0});
  }
  if (above_ && above_->valid()) descriptors.push_back(watched(*above_));
  for (const Below& below : below_) {
    if (below.link.valid()) descriptors.push_back(watched(below.link));
  }
  wait_for(descriptors, longest);

  std::vector<Event> events;
  if (listener_) {
    while (auto link = listener_->accept()) below_.push_back({.link = std::move(*link)});
  }
  take_from_above(now, events);
  for (Below& below : below_) take_from_below(below, now, events);
  std::erase_if(below_, [](const Below& below) { return !below.link.valid(); });
  return events;
}

void Tree::take_from_above(double now, std::vector<Event>& events) {
  if (options_.rank == 0 || above_left_) return;
  if (above_) {
    above_->flush();
    for (const Message& message : above_->receive()) {
      // Let in: what happens from now on is to be known above.
      if (!std::exchange(above_spoke_, true)) report_above(now);
      if (message.kind == MessageKind::reports) note(message.payload, now);
      if (message.kind == MessageKind::goodbye) above_left_ = true;
      if (message.kind == MessageKind::loss) {
        events.push_back({.kind = Event::Kind::told_of_loss, .rank = 0, .text = message.payload});
      }
      if (message.kind == MessageKind::verdict) {
        events.push_back({.kind = Event::Kind::verdict, .text = message.payload});
      }
    }
  }
  const bool broken = !above_ || !above_->valid();
  const int parent = parent_of(options_.rank, options_.fan_out);
  if (above_left_) {
    mark_left(parent);
  } else if (above_spoke_) {
    if (!broken) return;
    above_left_ = true;
    lose(parent, events);
  } else if (Clock::now() > attempts_end_) {
    above_left_ = true;
    events.push_back({.kind = Event::Kind::unreachable, .rank = parent});
  }
  if (above_left_) {
    above_.reset();  // nobody takes from it any more: its end would wake exchange() for ever
  } else if (Clock::now() > attempt_end_ ||
             (broken && Clock::now() > attempt_end_ - attempt_limit + 200ms)) {
    connect();
  }
}

void Tree::take_from_below(Below& below, double now, std::vector<Event>& events) {
  below.link.flush();
  for (const Message& message : below.link.receive()) {
    if (below.rank < 0) {
      greet(below, message.kind == MessageKind::hello ? message.payload : std::string());
      if (below.rank < 0) return;
      continue;
    }
    switch (message.kind) {
      case MessageKind::reports:
        note(message.payload, now);
        break;
      case MessageKind::goodbye:
        mark_left(below.rank);
        break;
      case MessageKind::loss:
        events.push_back(
            {.kind = Event::Kind::told_of_loss, .rank = below.rank, .text = message.payload});
        break;
      case MessageKind::hello:
      case MessageKind::verdict:
        below.link.close();
        break;
    }
  }
  if (!below.link.valid() && below.rank >= 0) lose(below.rank, events);
}

void Tree::greet(Below& below, const std::string& text) {
  Hello hello;
  if (text.size() == sizeof hello) std::memcpy(&hello, text.data(), sizeof hello);
  const bool ours = text.size() == sizeof hello && hello.job == options_.job &&
                    hello.to == options_.rank && hello.from > 0 && hello.from < options_.size &&
                    parent_of(hello.from, options_.fan_out) == options_.rank;
  if (!ours) {
    below.link.close();
    return;
  }
  below.rank = hello.from;
  // Even before there is something to report it says that the one below is let in.
  const RankReport& mine = known(options_.rank).report;
  below.link.send(MessageKind::reports,
                  mine.state == State::unheard ? "" : bytes_of(std::span(&mine, 1)));
}

void Tree::note(const std::string& payload, double now) {
  for (const RankReport& report : reports_in(payload)) {
    if (report.rank < 0 || report.rank >= options_.size || report.rank == options_.rank) continue;
    known(report.rank) = {.report = report, .at = now};
  }
}

/// With all below it: they are heard of no more, and part too.
void Tree::mark_left(int rank) {
  for (Known& each : known_) {
    for (int at = each.report.rank; at > options_.rank || at == rank;
         at = parent_of(at, options_.fan_out)) {
      if (at == rank) {
        each.report.state = State::left;
        break;
      }
    }
  }
}

void Tree::lose(int rank, std::vector<Event>& events) {
  RankReport& report = known(rank).report;
  if (report.state == State::left || report.state == State::lost) return;
  // Of an attempt to connect that was given up, nothing has been heard.
  if (rank > options_.rank && report.state == State::unheard) return;
  report.state = State::lost;
  events.push_back({.kind = Event::Kind::lost, .rank = rank});
}

void Tree::report_above(double now) {
  // What a stopped peer has not read yet says enough.
  if (!above_ || !above_spoke_ || above_->has_more_to_send()) return;
  std::vector<RankReport> all = reports(now);
  std::erase_if(all, [&](const RankReport& report) {
    return report.state == State::unheard || report.rank < options_.rank;
  });
  above_->send(MessageKind::reports, bytes_of(all));
}

void Tree::publish(const RankReport& mine, double now) {
  known(options_.rank) = {.report = mine, .at = now};
  report_above(now);
  for (Below& below : below_) {
    if (below.rank >= 0 && !below.link.has_more_to_send()) {
      below.link.send(MessageKind::reports, bytes_of(std::span(&mine, 1)));
    }
  }
}

void Tree::tell_above(const std::string& loss) {
  if (above_) above_->send(MessageKind::loss, loss);
}

void Tree::tell_below(MessageKind kind, const std::string& text) {
  for (Below& below : below_) {
    if (below.rank >= 0) below.link.send(kind, text);
  }
}

void Tree::say_goodbye() {
  if (above_) above_->send(MessageKind::goodbye);
  for (Below& below : below_) below.link.send(MessageKind::goodbye);
}

void Tree::drain(std::chrono::milliseconds longest) {
  for (const auto end = Clock::now() + longest; Clock::now() < end;) {
    std::vector<pollfd> descriptors;
    for (Below& below : below_) {
      below.link.flush();
      if (below.link.valid() && below.link.has_more_to_send()) {
        descriptors.push_back(watched(below.link));
      }
    }
    if (above_ && above_->valid() && above_spoke_) {
      above_->flush();
      if (above_->has_more_to_send()) descriptors.push_back(watched(*above_));
    }
    if (descriptors.empty()) return;
    wait_for(descriptors, 20ms);
  }
}

std::vector<RankReport> Tree::reports(double now) const {
  std::vector<RankReport> all;
  all.reserve(known_.size());
  for (const Known& each : known_) {
    RankReport report = each.report;
    if (report.rank != options_.rank) {
      report.idle += now - each.at;
      report.silent += now - each.at;
    }
    all.push_back(report);
  }
  return all;
}

}  // namespace lockstep::watch
