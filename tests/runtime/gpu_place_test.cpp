#include "lockstep/runtime/gpu_place.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>

using namespace lockstep;

namespace {

using Nic = GpuPlace::Nic;

/// In the node of a file of lstopo.
std::vector<GpuPlace> places_of(const std::vector<std::string>& bus_ids,
                                const char* topology = LOCKSTEP_TEST_TOPOLOGY) {
  ::setenv("HWLOC_XMLFILE", topology, 1);
  auto places = find_gpus(bus_ids);
  ::unsetenv("HWLOC_XMLFILE");
  BOOST_TEST_REQUIRE(places.size() == bus_ids.size());
  for (std::size_t i = 0; i < places.size(); ++i) BOOST_TEST(places[i].bus_id == bus_ids[i]);
  return places;
}
GpuPlace place_of(const std::string& bus_id) {
  return places_of({bus_id}).front();
}

void expect_words(const std::string& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    BOOST_TEST(text.find(word) != std::string::npos, "'" << word << "' is not in: " << text);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpu_has_the_cores_of_its_socket_and_the_nearest_nic) {
  const GpuPlace on_switch = place_of("0000:11:00.0");
  BOOST_TEST(on_switch.has_far_cores);
  BOOST_TEST((on_switch.near_cores == std::vector{0}));
  BOOST_TEST((on_switch.nic == Nic::same_switch));
  // InfiniBand's name, not that of its network device ib0.
  BOOST_TEST((on_switch.nics == std::vector<std::string>{"mlx5_0"}));

  const GpuPlace beside = place_of("0000:20:00.0");
  BOOST_TEST((beside.near_cores == std::vector{0}));
  BOOST_TEST((beside.nic == Nic::same_cores));

  const GpuPlace other_socket = place_of("0000:81:00.0");
  BOOST_TEST((other_socket.near_cores == std::vector{1}));
  BOOST_TEST((other_socket.nic == Nic::far));
}

BOOST_AUTO_TEST_CASE(nothing_is_known_of_a_gpu_that_is_absent_or_near_all_cores) {
  for (const char* id : {"0000:99:00.0", "0001:01:00.0", "nonsense", ""}) {
    const GpuPlace place = place_of(id);
    BOOST_TEST(place.has_far_cores);
    BOOST_TEST(place.near_cores.empty());
    BOOST_TEST((place.nic == Nic::none));
  }
}

BOOST_AUTO_TEST_CASE(gpus_keep_their_order) {
  const auto places = places_of({"0000:81:00.0", "0000:11:00.0"});
  BOOST_TEST((places[0].near_cores == std::vector{1}));
  BOOST_TEST((places[1].near_cores == std::vector{0}));
}

BOOST_AUTO_TEST_CASE(a_node_that_cannot_be_examined_has_unknown_places) {
  const GpuPlace place = places_of({"0000:11:00.0"}, __FILE__).front();
  BOOST_TEST(!place.has_far_cores);
  BOOST_TEST(place.near_cores.empty());
  BOOST_TEST(place.nics.empty());
}

BOOST_AUTO_TEST_CASE(near_cores_feed_a_gpu) {
  const GpuPlace place{.bus_id = "0000:11:00.0", .near_cores = {0, 1, 2, 3}, .has_far_cores = true};
  const std::vector<int> allowed{1, 3, 5};
  const FeedingCores some = choose_feeding_cores(place, allowed);
  BOOST_TEST((some.cores == std::vector{1, 3}));
  BOOST_TEST(!some.warning.has_value());
  expect_words(some.text, {"2 of 3 cores", "0000:11:00.0"});

  const std::vector<int> all_near{0, 2};
  const FeedingCores all = choose_feeding_cores(place, all_near);
  BOOST_TEST((all.cores == all_near));
  BOOST_TEST(all.text.empty());
  BOOST_TEST(!all.warning.has_value());
}

BOOST_AUTO_TEST_CASE(far_cores_are_used_with_a_reason) {
  GpuPlace place{.bus_id = "0000:81:00.0", .near_cores = {4, 5, 6}, .has_far_cores = true};
  const std::vector<int> allowed{0, 1, 2};
  FeedingCores far = choose_feeding_cores(place, allowed);
  BOOST_TEST((far.cores == allowed));
  BOOST_TEST(far.text.empty());
  BOOST_TEST_REQUIRE(far.warning.has_value());
  expect_words(*far.warning,
               {"on cores 0-2, not near GPU 0000:81:00.0 (near it: cores 4-6)", "--cpu-bind=none"});

  place.near_cores.clear();
  far = choose_feeding_cores(place, allowed);
  BOOST_TEST((far.cores == allowed));
  BOOST_TEST(far.text.empty());
  BOOST_TEST_REQUIRE(far.warning.has_value());
  expect_words(*far.warning, {"all 3 cores", "hwloc", "0000:81:00.0"});
}

BOOST_AUTO_TEST_CASE(no_core_is_far_in_a_node_of_one_numa_node) {
  const std::vector<int> allowed{0, 1, 2};
  const FeedingCores feeding = choose_feeding_cores({.bus_id = "0000:00:00.0"}, allowed);
  BOOST_TEST((feeding.cores == allowed));
  BOOST_TEST(feeding.text.empty());
  BOOST_TEST(!feeding.warning.has_value());
}
