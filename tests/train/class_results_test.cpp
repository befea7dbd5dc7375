#include "evaluation_record.hpp"

#include "io/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <limits>
#include <vector>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Six samples of three classes: a hit, a miss, two ties, of which one is a hit, and two with NaN.
struct Samples {
  std::vector<std::int32_t> labels{2, 2, 0, 2, 0, 1};
  std::vector<float> logits{-1.0F, 0.0F,         1.0F,   //
                            3.0F,  1.0F,         2.0F,   //
                            5.0F,  5.0F,         0.0F,   //
                            0.0F,  7.0F,         7.0F,   //
                            9.0F,  not_a_number, -2.0F,  //
                            0.0F,  not_a_number, 1.0F};
  [[nodiscard]] EvaluatedSamples all() const {
    return {.first = 0, .labels = labels, .logits = logits};
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_class_counts_its_hits) {
  std::vector<ClassResult> classes(3);

  add_to_classes(Samples{}.all(), classes);

  BOOST_TEST(classes[0].samples == 2);
  BOOST_TEST(classes[0].top1 == 1);
  BOOST_TEST(classes[1].samples == 1);
  BOOST_TEST(classes[1].top1 == 0);
  BOOST_TEST(classes[2].samples == 3);
  BOOST_TEST(classes[2].top1 == 1);
}

BOOST_AUTO_TEST_CASE(the_first_of_equal_logits_is_predicted) {
  for (const std::int32_t label : {0, 1, 2}) {
    BOOST_TEST(predicted_class(std::vector{1.0F, 4.0F, 4.0F}, label) == 1);
    BOOST_TEST(predicted_class(std::vector{-0.0F, 0.0F, -1.0F}, label) == 0);
  }
}

BOOST_AUTO_TEST_CASE(another_class_is_predicted_if_a_logit_is_nan) {
  const std::vector logits{8.0F, not_a_number, 9.0F, not_a_number};
  BOOST_TEST(predicted_class(logits, 0) == 1);
  BOOST_TEST(predicted_class(logits, 1) == 3);
  BOOST_TEST(predicted_class(std::vector{8.0F, not_a_number, 9.0F}, 1) == 2);
}

BOOST_AUTO_TEST_CASE(a_confusion_matrix_has_titles_and_a_row_for_each_class) {
  const TemporaryDirectory directory;
  ConfusionFile file(directory / "c.csv", {"plain", "comma, \"quote\"", "ünïcode\nline"});
  file.add(Samples{}.all());
  file.add(Samples{}.all());
  BOOST_TEST(!std::filesystem::exists(directory / "c.csv"));

  file.publish();

  BOOST_TEST(read_file(directory / "c.csv") ==
             "true class,plain,\"comma, \"\"quote\"\"\",ünïcode\\x0aline\n"
             "plain,2,2,0\n"
             "\"comma, \"\"quote\"\"\",0,0,2\n"
             "ünïcode\\x0aline,2,2,2\n");
}

BOOST_AUTO_TEST_CASE(a_matrix_that_is_not_published_leaves_no_file) {
  const TemporaryDirectory directory;
  { ConfusionFile(directory / "c.csv", {"a", "b", "c"}).add(Samples{}.all()); }

  BOOST_TEST(std::filesystem::is_empty(directory.path()));
}
