#include "lockstep/parallel/bucket_plan.hpp"

#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <set>
#include <vector>

namespace lockstep {

// For Boost's messages.
static std::ostream& operator<<(std::ostream& out, const Bucket& bucket) {
  return out << '[' << bucket.begin << ", " << bucket.end << ')';
}

}  // namespace lockstep

using namespace lockstep;

namespace {

ArenaLayout layout_of(const std::vector<std::size_t>& sizes) {
  ArenaLayout layout;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layout.views.push_back({.parameter = static_cast<ParameterId>(i),
                            .kind = ParameterKind::weight,
                            .offset = layout.size(),
                            .size = sizes[i]});
  }
  return layout;
}

ArenaLayout random_layout(std::uint32_t which) {
  PhiloxStream random(3, RandomPurpose::synthetic_data, which, 0);
  std::vector<std::size_t> sizes(1 + random.next_below(60));
  for (std::size_t& size : sizes)
    size = 1 + random.next_below(random.next_below(8) == 0 ? 9000 : 90);
  return layout_of(sizes);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_bucket_ends_with_the_tensor_that_fills_it) {
  const ArenaLayout layout = layout_of({100, 10, 50, 200, 8});  // at 0, 112, 128, 192, 400 of 416

  const std::vector<Bucket> buckets = plan_buckets(layout, 24, 128 * sizeof(float));

  const std::vector<Bucket> expected{{0, 128}, {128, 400}, {400, 440}};
  BOOST_TEST(buckets == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_last_buckets_become_smaller) {
  constexpr std::size_t mib = (std::size_t{1} << 20) / sizeof(float);
  const ArenaLayout layout = layout_of(std::vector<std::size_t>(64, mib));  // 64 tensors of 1 MiB

  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : plan_buckets(layout, 24, 25 * mib * sizeof(float))) {
    sizes.push_back(bucket.size() / mib);
  }

  const std::vector<std::size_t> expected{25, 20, 10, 5, 2, 1, 1};
  BOOST_TEST(sizes == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(buckets_cover_arena_and_tail_without_gaps) {
  for (std::uint32_t which = 0; which < 200; ++which) {
    const ArenaLayout layout = random_layout(which);
    for (const std::size_t bytes : {0, 1, 400, 4000, 1 << 30}) {
      const std::vector<Bucket> buckets = plan_buckets(layout, 33, bytes);

      std::size_t at = 0;
      for (const Bucket& bucket : buckets) {
        BOOST_REQUIRE_EQUAL(bucket.begin, at);
        BOOST_REQUIRE_LT(bucket.begin, bucket.end);
        at = bucket.end;
      }
      BOOST_REQUIRE_EQUAL(at, layout.size() + 33);
    }
  }
}

BOOST_AUTO_TEST_CASE(buckets_begin_at_tensors_and_are_no_larger_than_needed) {
  for (std::uint32_t which = 0; which < 200; ++which) {
    const ArenaLayout layout = random_layout(which);
    std::set<std::size_t> offsets;
    for (const ArenaView& view : layout.views) offsets.insert(view.offset);
    for (const std::size_t bytes : {0, 400, 4000}) {
      const std::vector<Bucket> buckets = plan_buckets(layout, 33, bytes);

      for (std::size_t i = 0; i < buckets.size(); ++i) {
        BOOST_REQUIRE(offsets.contains(buckets[i].begin));
        if (i + 1 == buckets.size()) continue;
        BOOST_REQUIRE_GE(buckets[i].size() * sizeof(float), bytes);
        // Without its last tensor it would have been too small.
        const std::size_t last = *std::prev(offsets.lower_bound(buckets[i].end));
        if (last > buckets[i].begin) {
          BOOST_REQUIRE_LT((last - buckets[i].begin) * sizeof(float), bytes);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_target_of_zero_gives_each_tensor_its_own_bucket) {
  BOOST_TEST(plan_buckets(layout_of({5, 5, 5}), 0, 0).size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_large_target_gives_one_bucket) {
  const std::vector<Bucket> expected{{0, 58}};

  BOOST_TEST(plan_buckets(layout_of({5, 5, 5}), 10, 1 << 20) == expected,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_network_without_parameters_has_only_the_tail) {
  const std::vector<Bucket> expected{{0, 8}};

  BOOST_TEST(plan_buckets(ArenaLayout{}, 8, 100) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_separate_tail_bucket_leaves_the_other_buckets_unchanged) {
  const ArenaLayout layout = layout_of({100, 200, 50, 7, 300});
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{600}, std::size_t{1} << 20}) {
    std::vector<Bucket> expected = plan_buckets(layout, 0, bytes);
    expected.push_back({.begin = layout.size(), .end = layout.size() + 10});

    BOOST_TEST(plan_buckets(layout, 10, bytes, TailPlace::separate_bucket) == expected,
               boost::test_tools::per_element());
  }
  const std::vector<Bucket> alone{{.begin = 0, .end = 8}};
  BOOST_TEST(plan_buckets(ArenaLayout{}, 8, 100, TailPlace::separate_bucket) == alone,
             boost::test_tools::per_element());
}
