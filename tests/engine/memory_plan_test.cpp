#include "lockstep/engine/memory_plan.hpp"

#include "lockstep/core/philox.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace lockstep;

namespace {

/// The largest number of bytes alive at once, which is a lower bound of any plan.
std::size_t peak(const std::vector<BufferRequest>& requests) {
  std::size_t result = 0;
  for (const BufferRequest& at : requests) {
    std::size_t alive = 0;
    for (const BufferRequest& request : requests) {
      if (request.first_step <= at.first_step && at.first_step <= request.last_step) {
        alive += (request.bytes + 255) / 256 * 256;
      }
    }
    result = std::max(result, alive);
  }
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_requests_need_no_memory) {
  const MemoryPlan plan = plan_memory({});

  BOOST_TEST(plan.offsets.empty());
  BOOST_TEST(plan.total_bytes == 0u);
}

BOOST_AUTO_TEST_CASE(buffers_with_disjoint_lifetimes_share_memory) {
  const std::vector<BufferRequest> requests{{.bytes = 640, .first_step = 0, .last_step = 1},
                                            {.bytes = 600, .first_step = 2, .last_step = 3}};

  const MemoryPlan plan = plan_memory(requests);

  BOOST_TEST(plan.offsets[0] == plan.offsets[1]);
  BOOST_TEST(plan.total_bytes == 768u);
}

BOOST_AUTO_TEST_CASE(buffers_alive_in_the_same_step_do_not_share_memory) {
  const std::vector<BufferRequest> requests{{.bytes = 256, .first_step = 0, .last_step = 1},
                                            {.bytes = 256, .first_step = 1, .last_step = 2}};

  const MemoryPlan plan = plan_memory(requests);

  BOOST_TEST(plan.total_bytes == 512u);
}

BOOST_AUTO_TEST_CASE(random_plans_have_no_overlaps_and_are_close_to_the_peak) {
  PhiloxStream random(4, RandomPurpose::synthetic_data, 0, 0);
  for (int round = 0; round < 50; ++round) {
    std::vector<BufferRequest> requests;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random.next_below(100));
      requests.push_back({.bytes = random.next_below(5000),
                          .first_step = first,
                          .last_step = first + static_cast<int>(random.next_below(30))});
    }

    const MemoryPlan plan = plan_memory(requests);

    std::size_t clashes = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      BOOST_TEST(plan.offsets[i] % 256 == 0u);
      BOOST_TEST(plan.offsets[i] + requests[i].bytes <= plan.total_bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = requests[i].first_step <= requests[j].last_step &&
                              requests[j].first_step <= requests[i].last_step;
        const bool overlap = plan.offsets[i] < plan.offsets[j] + requests[j].bytes &&
                             plan.offsets[j] < plan.offsets[i] + requests[i].bytes;
        if (together && overlap) ++clashes;
      }
    }
    BOOST_TEST(clashes == 0u);
    BOOST_TEST(plan.total_bytes >= peak(requests));
    BOOST_TEST(plan.total_bytes <= 2 * peak(requests));
  }
}
