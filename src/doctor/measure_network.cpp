#include "lockstep/doctor/judge.hpp"
#include "measure.hpp"

#include <fstream>
#include <sstream>

namespace lockstep::doctor {
namespace {

/// Limit per attempt at an address.
constexpr auto route_limit = std::chrono::milliseconds(1000);
constexpr int latency_tag = 11;
constexpr int bandwidth_tag = 12;
constexpr std::size_t small_message = 8;
constexpr std::size_t large_message = std::size_t{1} << 20;

/// The system's counters since its start; zeros if they cannot be read.
SegmentFacts segments_so_far() {
  SegmentFacts segments;
  std::ifstream file("/proc/self/net/snmp");
  for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
    if (!names.starts_with("Tcp:")) continue;
    std::istringstream name(names);
    std::istringstream value(values);
    name.ignore(4);
    value.ignore(4);
    std::int64_t number = 0;  // MaxConn may be -1
    for (std::string word; name >> word && value >> number;) {
      if (word == "OutSegs") segments.sent = static_cast<std::uint64_t>(number);
      if (word == "RetransSegs") segments.retransmitted = static_cast<std::uint64_t>(number);
    }
  }
  return segments;
}

Passage exchange(Mailbox& mailbox, int other, std::chrono::duration<double> limit) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  Passage passage;
  // A slow or busy machine measures fewer repetitions, so that only lost messages meet the
  // deadline.
  const auto enough = limit / 8;
  // The first message establishes the connection.
  for (const int repetitions : {1, 20}) {
    const Mailbox::Echo echo = mailbox.echo(other, {.tag = latency_tag,
                                                    .bytes = small_message,
                                                    .repetitions = repetitions,
                                                    .enough = enough,
                                                    .deadline = deadline});
    passage.latency = echo.seconds;
    passage.error = echo.error;
    if (!echo.error.empty()) return passage;
  }
  const Mailbox::Echo echo = mailbox.echo(other, {.tag = bandwidth_tag,
                                                  .bytes = large_message,
                                                  .repetitions = 20,
                                                  .enough = enough,
                                                  .deadline = deadline});
  passage.error = echo.error;
  passage.bandwidth = static_cast<double>(large_message) / echo.seconds;
  return passage;
}

}  // namespace

Passage measure_passage(Mailbox& mailbox, int other, std::chrono::duration<double> limit) {
  const SegmentFacts before = segments_so_far();
  Passage passage = exchange(mailbox, other, limit);
  const SegmentFacts after = segments_so_far();
  passage.segments = {.sent = after.sent - before.sent,
                      .retransmitted = after.retransmitted - before.retransmitted};
  return passage;
}

std::vector<RouteFacts> measure_routes(const RouteTarget& target, Clock::time_point deadline) {
  std::vector<RouteFacts> routes;
  for (const InterfaceAddress& address : target.addresses) {
    if (Clock::now() >= deadline) break;
    RouteFacts route;
    for (std::size_t i = 0; i < measurements_to_find; ++i) {
      const auto begin = Clock::now();
      route = try_route({.address = address,
                         .port = target.port,
                         .greeting = target.greeting,
                         .limit = route_limit});
      // Only the lack of an answer in time may be by chance.
      if (route.error.empty() || Clock::now() - begin < route_limit) break;
    }
    routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace lockstep::doctor
