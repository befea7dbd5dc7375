#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/report/scaling_study.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

using namespace lockstep;
using report::ScalingPoint;
using report::ScalingStudy;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::string result(double images_per_second, double exposed = 0.02) {
  return fmt::format(
      R"({{"images_per_second":{},"step_seconds_median":0.1,"exposed_communication_seconds":{},)"
      R"("ranks":4,"global_batch":128,"model":"m","precision":"fp32","engine":"e"}})",
      images_per_second, exposed);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_spread_is_the_median_and_the_extremes) {
  const report::Spread odd = report::spread_of({3, 1, 2});
  const report::Spread even = report::spread_of({4, 1, 3, 2});

  BOOST_TEST((odd.median == 2 && odd.least == 1 && odd.greatest == 3));
  BOOST_TEST((even.median == 2.5 && even.least == 1 && even.greatest == 4));
  BOOST_TEST(std::isnan(report::spread_of({}).median));
}

BOOST_AUTO_TEST_CASE(points_have_their_repetitions_and_name_the_missing_ones) {
  const TemporaryDirectory directory;
  write_file(directory / "points",
             "weak 2 1\nweak 2 2\nstrong 2 1\nweak 1 1\nweak 1 2\nstrong 10 1\n");
  write_file(directory / "weak-0001-1.json", result(100, 0.01));
  write_file(directory / "weak-0001-2.json", result(110, 0.03));
  write_file(directory / "weak-0002-1.json", R"({"images_per_second":1)");  // torn
  write_file(directory / "weak-0002-2.json", result(168));
  const ScalingStudy study = report::read_scaling_study(directory.path());

  BOOST_TEST_REQUIRE(study.points.size() == 4U);
  const ScalingPoint& one = study.points[0];
  const ScalingPoint& two = study.points[1];
  const ScalingPoint& strong = study.points[2];
  BOOST_TEST((one.mode == "weak" && one.nodes == 1 && one.runs() == 2 && one.missing.empty()));
  BOOST_TEST((one.ranks == 4 && one.batch == 128));
  BOOST_TEST(one.images_per_second.median == 105);
  BOOST_TEST(one.images_per_second.least == 100);
  BOOST_TEST(one.images_per_second.greatest == 110);
  BOOST_TEST(one.efficiency.median == 1);
  BOOST_TEST(one.exposed_seconds == 0.02);
  BOOST_TEST(std::abs(one.compute_seconds - 0.08) < 1e-12);
  BOOST_TEST(std::abs(one.exposed_share - 0.2) < 1e-12);
  BOOST_TEST((two.nodes == 2 && two.runs() == 1 && two.wanted == 2));
  BOOST_TEST(two.efficiency.median == 0.8);
  BOOST_TEST(two.missing == std::vector<std::string>{"weak-0002-1"},
             boost::test_tools::per_element());
  BOOST_TEST((strong.mode == "strong" && strong.nodes == 2 && strong.runs() == 0));
  BOOST_TEST(std::isnan(strong.images_per_second.median));
  BOOST_TEST(study.points[3].missing.front() == "strong-0010-1");
  BOOST_TEST(!study.is_complete());
  BOOST_TEST_REQUIRE(study.notes.size() == 1U);
  BOOST_TEST(study.notes[0].find("weak-0002-1.json") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(efficiency_is_relative_to_the_fewest_nodes_of_the_mode) {
  const TemporaryDirectory directory;
  write_file(directory / "points", "weak 1 1\nstrong 2 1\nstrong 10 1\n");
  write_file(directory / "weak-0001-1.json", result(100));
  write_file(directory / "strong-0002-1.json", result(160));
  write_file(directory / "strong-0010-1.json", result(400));
  const ScalingStudy study = report::read_scaling_study(directory.path());

  BOOST_TEST(study.points[1].efficiency.median == 1);
  BOOST_TEST(study.points[2].efficiency.median == 0.5);
}

BOOST_AUTO_TEST_CASE(hidden_communication_may_be_unknown) {
  const TemporaryDirectory directory;
  const auto with_hidden = [](const char* seconds) {
    std::string text = result(100);
    text.back() = ',';
    return text + R"("hidden_communication_seconds":)" + seconds + "}";
  };
  write_file(directory / "points", "weak 1 1\nweak 1 2\nweak 1 3\nweak 2 1\nweak 4 1\n");
  write_file(directory / "weak-0001-1.json", with_hidden("0.01"));
  write_file(directory / "weak-0001-2.json", with_hidden("0.03"));
  write_file(directory / "weak-0001-3.json", with_hidden("null"));
  write_file(directory / "weak-0002-1.json", with_hidden("null"));
  write_file(directory / "weak-0004-1.json", result(100));
  const ScalingStudy study = report::read_scaling_study(directory.path());

  BOOST_TEST(study.points[0].runs() == 3);
  BOOST_TEST(study.points[0].hidden_seconds == 0.02);
  BOOST_TEST(std::isnan(study.points[1].hidden_seconds));
  BOOST_TEST(std::isnan(study.points[2].hidden_seconds));
}

BOOST_AUTO_TEST_CASE(the_table_names_what_is_missing_and_predicted) {
  const TemporaryDirectory directory;
  write_file(directory / "points", "weak 1 1\nweak 2 1\n");
  write_file(directory / "weak-0001-1.json", result(100));
  ScalingStudy study = report::read_scaling_study(directory.path());

  const std::string table = report::table_of(study);
  BOOST_TEST(table.starts_with("m, fp32, e\n\n"));
  BOOST_TEST(table.find("100.0-100.0     100.0 %         20.0 %  1 of 1\n") != std::string::npos);
  BOOST_TEST(table.find("missing  0 of 1\n") != std::string::npos);
  BOOST_TEST(table.find("predicted") == std::string::npos);

  study.points[0].predicted = report::PredictedPoint{.images_per_second = 125};
  BOOST_TEST(report::table_of(study).find("125.0") != std::string::npos);
  BOOST_TEST(report::table_of(study).find("80.0 %") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(numbers_that_cannot_be_are_missing) {
  const TemporaryDirectory directory;
  write_file(directory / "points", "weak 1 1\n");
  for (const char* text : {"", "[]", "null", R"({"images_per_second":null})"}) {
    write_file(directory / "weak-0001-1.json", text);
    BOOST_TEST(report::read_scaling_study(directory.path()).points[0].runs() == 0);
  }
  write_file(directory / "weak-0001-1.json", result(0));
  BOOST_TEST(report::read_scaling_study(directory.path()).points[0].runs() == 0);
  write_file(directory / "weak-0001-1.json", result(1, -1));
  BOOST_TEST(report::read_scaling_study(directory.path()).points[0].runs() == 0);
}

BOOST_AUTO_TEST_CASE(a_damaged_list_of_points_is_refused) {
  const TemporaryDirectory directory;
  BOOST_TEST(!report::is_scaling_study(directory.path()));
  for (const char* text : {"weak 1\n", "weak 1 1 1\n", "../x 1 1\n", "weak 0 1\n", "weak 1 0\n",
                           "weak x 1\n", "weak 99999999999999999999 1\n"}) {
    write_file(directory / "points", text);
    BOOST_TEST(report::is_scaling_study(directory.path()));
    BOOST_CHECK_THROW(static_cast<void>(report::read_scaling_study(directory.path())), Error);
  }
}
