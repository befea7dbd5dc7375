#include "doctor/routes.hpp"

#include "doctor/measure.hpp"

#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <thread>

using namespace lockstep::doctor;

namespace {

constexpr auto limit = std::chrono::seconds(20);

RouteFacts reach(const std::string& address, int port, const std::string& greeting) {
  const lockstep::InterfaceAddress there{.interface = "lo", .number = address};
  return try_route({.address = there, .port = port, .greeting = greeting, .limit = limit});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_listener_is_reached) {
  const Listener listener("node7", std::nullopt);

  for (int i = 0; i < 3; ++i) BOOST_TEST(reach("127.0.0.1", listener.port(), "node7").error == "");
}

BOOST_AUTO_TEST_CASE(an_address_that_does_not_answer_in_time_is_tried_again) {
  const lockstep::ListeningSocket socket("check the limits");
  const auto accept = [&] {
    pollfd waiting{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 20'000) == 1 ? socket.accept() : lockstep::Descriptor();
  };
  const std::jthread server([&] {
    const lockstep::Descriptor unanswered = accept();
    static_cast<void>(::send(accept().get(), "node7", 5, MSG_NOSIGNAL));
  });

  const auto routes = measure_routes({.addresses = {{.interface = "lo", .number = "127.0.0.1"}},
                                      .port = socket.port(),
                                      .greeting = "node7"},
                                     Clock::now() + limit);

  BOOST_REQUIRE(routes.size() == 1u);
  BOOST_TEST(routes[0].error == "");
}

BOOST_AUTO_TEST_CASE(another_host_with_the_same_address_is_reported) {
  const Listener listener("node7", std::nullopt);

  BOOST_TEST(reach("127.0.0.1", listener.port(), "node8").error.find("another host") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_port_without_a_listener_is_reported) {
  int port = 0;
  { port = Listener("node7", std::nullopt).port(); }

  BOOST_TEST(reach("127.0.0.1", port, "node7").error == "Connection refused");
}

BOOST_AUTO_TEST_CASE(an_invalid_address_is_reported) {
  BOOST_TEST(reach("no address", 1, "node7").error != "");
}

BOOST_AUTO_TEST_CASE(loopback_is_not_among_the_addresses) {
  const auto addresses = lockstep::interface_addresses();

  BOOST_TEST(
      std::none_of(addresses.begin(), addresses.end(), [](const lockstep::InterfaceAddress& each) {
        return each.number == "127.0.0.1" || each.number == "::1";
      }));
}
