#include "lockstep/train/normalization.hpp"
#include "lockstep/config/config.hpp"

#include "data/shard_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<double> none;

DatasetInfo data_set(const std::vector<float>& mean, const std::vector<float>& std, bool states) {
  DatasetInfo info;
  info.directory = "shards";
  info.split = "val";
  info.mean = mean;
  info.std = std;
  info.states_mean = info.states_std = states;
  return info;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_weights_values_override_the_data_sets_and_a_warning_names_both) {
  const WeightsNormalization weights{.file = "w.h5", .mean = {0.5F, 0.25F}, .std = {0.125F, 0.5F}};
  Config config;

  const std::string warning =
      normalize_as_trained(weights, data_set({0.75F, 0.25F}, {0.125F, 0.5F}, true), config);

  BOOST_TEST(config.mean == (std::vector<double>{0.5, 0.25}), boost::test_tools::per_element());
  BOOST_TEST(config.std == (std::vector<double>{0.125, 0.5}), boost::test_tools::per_element());
  BOOST_TEST(says(warning, "w.h5 was trained with mean [0.5, 0.25], std [0.125, 0.5]"), warning);
  BOOST_TEST(says(warning, "split val of shards has mean [0.75, 0.25]"), warning);
}

BOOST_AUTO_TEST_CASE(given_values_are_kept_and_a_warning_says_how_they_change_inputs) {
  const WeightsNormalization weights{.file = "w.h5", .mean = {0.5F, 0.25F}, .std = {0.25F}};
  const DatasetInfo data = data_set({0.1F}, {0.2F}, true);
  Config config;
  config.mean = {0.125};
  config.std = {0.75};

  const std::string warning = normalize_as_trained(weights, data, config);

  BOOST_TEST(config.mean == std::vector<double>{0.125}, boost::test_tools::per_element());
  BOOST_TEST(config.std == std::vector<double>{0.75}, boost::test_tools::per_element());
  BOOST_TEST(says(warning, "w.h5 was trained with mean [0.5, 0.25], std [0.25]"), warning);
  BOOST_TEST(says(warning, "give mean [0.125], std [0.75]"), warning);
  // A pixel of 1 was (1 - 0.5) / 0.25 = 2, and is (1 - 0.125) / 0.75 = 2 / 3 + 0.5.
  BOOST_TEST(says(warning, "multiplied by 0.3333 and shifted by [0.5, 0.1667]"), warning);
}

BOOST_AUTO_TEST_CASE(one_given_statistic_is_compared_beside_the_other_of_the_weights) {
  const WeightsNormalization weights{.file = "w.h5", .mean = {0.5F}, .std = {0.25F}};
  Config config;
  config.std = {0.82 * 0.25};

  const std::string warning = normalize_as_trained(weights, data_set({0.1F}, {0.2F}, true), config);

  BOOST_TEST(says(warning, "give mean [0.5], std [0.205]"), warning);
  BOOST_TEST(says(warning, "multiplied by 1.22 and shifted by 0"), warning);
}

BOOST_AUTO_TEST_CASE(given_values_of_the_weights_or_for_weights_without_values_give_no_warning) {
  const DatasetInfo data = data_set({0.1F}, {0.2F}, true);
  const auto warning_of = [&](const WeightsNormalization& weights) {
    Config config;
    config.mean = {0.125};
    config.std = {0.75};
    return normalize_as_trained(weights, data, config);
  };

  BOOST_TEST(warning_of({.file = "w.h5", .mean = {}, .std = {}}).empty());
  BOOST_TEST(warning_of({.file = "w.h5", .mean = {0.125F, 0.12501F}, .std = {0.75F}}).empty());
}

BOOST_AUTO_TEST_CASE(equal_values_or_a_data_set_without_values_give_no_warning) {
  const WeightsNormalization weights{.file = "w.h5", .mean = {0.5F}, .std = {0.25F}};
  const auto warning_of = [&](const DatasetInfo& data) {
    Config config;
    return normalize_as_trained(weights, data, config);
  };

  // One value applies to all channels. Less than a tenth of a standard deviation does not count, as
  // between ImageNet's values and those of other photographs.
  BOOST_TEST(warning_of(data_set({0.5F, 0.524F, 0.476F}, {0.25F}, true)).empty());
  BOOST_TEST(warning_of(data_set({0.5F}, {0.274F, 0.226F}, true)).empty());
  BOOST_TEST(warning_of(data_set({0.1F}, {0.9F}, false)).empty());
  BOOST_TEST(!warning_of(data_set({0.5F, 0.526F, 0.5F}, {0.25F}, true)).empty());
  BOOST_TEST(!warning_of(data_set({0.5F}, {0.276F}, true)).empty());
  BOOST_TEST(!warning_of(data_set({0.5F}, {0.224F}, true)).empty());
}

BOOST_AUTO_TEST_CASE(weights_without_values_leave_the_data_sets_values_with_a_warning) {
  Config config;

  const std::string warning = normalize_as_trained(
      {.file = "w.h5", .mean = {}, .std = {}}, data_set({0.1F, 0.2F, 0.3F}, {0.4F}, true), config);

  BOOST_TEST(config.mean == none, boost::test_tools::per_element());
  BOOST_TEST(config.std == none, boost::test_tools::per_element());
  BOOST_TEST(says(warning, "w.h5 does not say"), warning);
  BOOST_TEST(says(warning, "mean [0.1, 0.2, 0.3], std [0.4]"), warning);
}

BOOST_AUTO_TEST_CASE(invalid_values_are_refused) {
  const auto comm = make_self_communicator();
  const auto status_of = [&](float mean, float std) {
    CheckpointInfo info;
    info.mean = {mean};
    info.std = {std};
    return failure_of([&] { (void)broadcast_normalization(info, "w.h5", *comm); }).status;
  };

  BOOST_TEST((status_of(0.0F, 0.5F) == ExitStatus::ok));
  BOOST_TEST((status_of(0.5F, 0.0F) == ExitStatus::bad_input));
  BOOST_TEST((status_of(1.0F, 1.0F) == ExitStatus::ok));
  BOOST_TEST((status_of(123.7F, 0.5F) == ExitStatus::bad_input));
  BOOST_TEST((status_of(-0.1F, 0.5F) == ExitStatus::bad_input));
  BOOST_TEST((status_of(0.5F, 58.4F) == ExitStatus::bad_input));
  BOOST_TEST((status_of(std::numeric_limits<float>::quiet_NaN(), 0.5F) == ExitStatus::bad_input));
  BOOST_TEST((status_of(0.5F, std::numeric_limits<float>::infinity()) == ExitStatus::bad_input));
}
