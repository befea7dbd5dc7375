#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/graph/graph.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

using namespace lockstep;

namespace {

const Parameter conv_weight{.name = "layer1.0.conv1.weight",
                            .shape = {64, 32, 3, 3},
                            .kind = ParameterKind::weight,
                            .initialization = Initialization::kaiming_normal_fan_out,
                            .fan_in = 288};
const Parameter fc_weight{.name = "fc.weight",
                          .shape = {100, 256},
                          .kind = ParameterKind::weight,
                          .initialization = Initialization::uniform_fan_in,
                          .fan_in = 256};

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(convolutions_are_kaiming_normal_by_fan_out) {
  const std::vector<float> values = initial_values(conv_weight, 1);
  const double expected = std::sqrt(2.0 / (64 * 9));

  BOOST_TEST(values.size() == 64u * 32 * 9);
  // 18,432 values: the standard error of the mean is expected / 136, that of the deviation 0.5 %.
  BOOST_TEST(std::abs(mean(values)) < 4 * expected / 136);
  BOOST_TEST(deviation(values) == expected, boost::test_tools::tolerance(0.02));
  // A normal distribution has 4.55 % beyond two deviations; a uniform one of the same variance has
  // none.
  const auto beyond = std::count_if(values.begin(), values.end(), [&](float value) {
    return std::abs(static_cast<double>(value)) > 2 * expected;
  });
  BOOST_TEST(static_cast<double>(beyond) / 18432 == 0.0455, boost::test_tools::tolerance(0.15));
}

BOOST_AUTO_TEST_CASE(linear_layers_are_uniform_by_fan_in) {
  const std::vector<float> values = initial_values(fc_weight, 1);
  const double bound = 1.0 / 16;

  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  BOOST_TEST(*least >= -bound);
  BOOST_TEST(*most <= bound);
  BOOST_TEST(*least < -0.99 * bound);
  BOOST_TEST(*most > 0.99 * bound);
  BOOST_TEST(deviation(values) == bound / std::sqrt(3.0), boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(batch_norm_starts_with_constants) {
  Parameter norm{.name = "bn1.weight",
                 .shape = {8},
                 .kind = ParameterKind::norm,
                 .initialization = Initialization::ones};

  BOOST_TEST(initial_values(norm, 3) == std::vector<float>(8, 1.0F));
  norm.initialization = Initialization::zeros;
  BOOST_TEST(initial_values(norm, 3) == std::vector<float>(8, 0.0F));
}

BOOST_AUTO_TEST_CASE(values_depend_only_on_seed_name_and_shape) {
  Parameter renamed = conv_weight;
  renamed.name = "layer1.0.conv2.weight";
  const std::vector<float> values = initial_values(conv_weight, 1);

  BOOST_TEST(initial_values(conv_weight, 1) == values);
  BOOST_TEST(initial_values(conv_weight, 2) != values);
  BOOST_TEST(initial_values(conv_weight, std::uint64_t{1} << 32 | 1) != values);
  BOOST_TEST(initial_values(renamed, 1) != values);
}

BOOST_AUTO_TEST_CASE(values_equal_those_that_one_thread_draws_in_order) {
  for (const Parameter& parameter : {conv_weight, fc_weight}) {
    const std::vector<float> values = initial_values(parameter, 7);
    PhiloxStream random(7, RandomPurpose::initialization, crc32c(parameter.name), 0);
    const bool normal = parameter.initialization == Initialization::kaiming_normal_fan_out;
    const double scale = normal ? std::sqrt(2.0 / (64 * 9)) : 1.0 / 16;
    BOOST_TEST(values.size() > 3 * 4096U);  // several chunks
    for (const float value : values) {
      const double drawn = normal ? random.next_normal() : 2 * random.next_double() - 1;
      BOOST_TEST_REQUIRE(value == static_cast<float>(scale * drawn));
    }
  }
}
