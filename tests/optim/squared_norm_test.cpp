#include "lockstep/core/philox.hpp"
#include "lockstep/optim/optimizer.hpp"

#include <omp.h>
#include <boost/test/unit_test.hpp>
#include <vector>

using namespace lockstep;

namespace {

std::vector<float> random_values(std::size_t size) {
  PhiloxStream random(5, RandomPurpose::synthetic_data, 0, 0);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_squared_norm_is_the_sum_of_squares_at_any_size) {
  // Sizes around lanes of 8, chunks of 4,096 and groups of 1,048,576.
  for (const std::size_t size :
       {0, 1, 7, 8, 9, 4095, 4096, 4097, 16385, 1048576, 1048577, 2100003}) {
    const std::vector<float> values = random_values(size);
    double expected = 0;
    for (const float value : values) expected += static_cast<double>(value) * value;

    BOOST_TEST(squared_norm(values) == expected, boost::test_tools::tolerance(1e-12));
  }
}

BOOST_AUTO_TEST_CASE(the_squared_norm_has_the_same_bits_with_any_number_of_threads) {
  const std::vector<float> values = random_values(1'500'001);
  omp_set_num_threads(1);
  const double alone = squared_norm(values);

  for (const int threads : {2, 3, 5}) {
    omp_set_num_threads(threads);
    BOOST_TEST((squared_norm(values) == alone));
  }
}
