#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/runtime/watch_addresses.hpp"

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;

namespace {

const std::vector<InterfaceAddress> host{
    {.interface = "docker0", .number = "172.17.0.1"},
    {.interface = "eth0", .number = "10.1.4.7"},
    {.interface = "ib0", .number = "fd00::7"},
    {.interface = "ib0", .number = "10.2.4.7"},
    {.interface = "virbr0", .number = "192.168.122.1"},
    {.interface = "lo", .number = "127.0.0.1", .loopback = true}};

std::vector<std::string> numbers(const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> result;
  for (const InterfaceAddress& each : all) result.push_back(each.number);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_interface_is_chosen_by_name_or_network) {
  for (const auto& [asked, expected] :
       std::vector<std::pair<std::string, std::string>>{{"eth0", "10.1.4.7"},
                                                        {"ib0", "10.2.4.7"},
                                                        {"lo", "127.0.0.1"},
                                                        {"10.2.0.0/16", "10.2.4.7"},
                                                        {"10.0.0.0/8", "10.1.4.7"},
                                                        {"10.2.4.6/31", "10.2.4.7"},
                                                        {"fd00::/64", "fd00::7"},
                                                        {"ib7,eth0", "10.1.4.7"},
                                                        {"10.9.0.0/16,ib0", "10.2.4.7"}}) {
    BOOST_TEST(choose_address(asked, host).number == expected, asked);
  }
}

BOOST_AUTO_TEST_CASE(a_missing_interface_is_refused_with_a_list_of_the_existing_ones) {
  for (const std::string asked : {"eth", "eth1", "10.3.0.0/16", "10.2.4.8/31", ",", "^docker"}) {
    const std::string text = test::refusal([&] { static_cast<void>(choose_address(asked, host)); });
    BOOST_TEST(test::contains(text, "--watchdog-interface " + asked + " is not on this host"));
    BOOST_TEST(test::contains(text, "eth0 10.1.4.7, ib0 fd00::7"));
  }
  for (const std::string asked :
       {"10.3.0.0/33", "10.3/16", "10.3.0.0/", "10.3.0.0/1x", "fd00::/-1"}) {
    const std::string text = test::refusal([&] { static_cast<void>(choose_address(asked, host)); });
    BOOST_TEST(test::contains(text, "is no network"), text);
  }
}

BOOST_AUTO_TEST_CASE(bridges_and_loopback_are_left_out_if_there_are_other_addresses) {
  BOOST_TEST((numbers(reachable_addresses(host)) ==
              std::vector<std::string>{"10.1.4.7", "fd00::7", "10.2.4.7"}));
  BOOST_TEST(
      (numbers(reachable_addresses({host.begin(), 1})) == std::vector<std::string>{"172.17.0.1"}));
}
