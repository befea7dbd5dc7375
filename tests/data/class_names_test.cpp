#include "lockstep/data/class_names.hpp"

#include "data/shard_fixture.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <utility>

using namespace lockstep;
using namespace lockstep::test;

namespace {

ClassMatch match(std::vector<std::string> network, std::vector<std::string> data,
                 ClassUse use = ClassUse::evaluation) {
  return match_classes({.of = "w.h5", .names = std::move(network)},
                       {.of = "split val of data", .names = std::move(data)}, use);
}

Failure refusal(std::vector<std::string> network, std::vector<std::string> data,
                ClassUse use = ClassUse::evaluation) {
  Failure failure = failure_of([&] { (void)match(std::move(network), std::move(data), use); });
  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(ExitStatus::bad_input));
  return failure;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr std::array every_use{ClassUse::evaluation, ClassUse::initial_weights, ClassUse::resume};

}  // namespace

BOOST_AUTO_TEST_CASE(equal_lists_need_no_numbering_even_with_duplicates) {
  for (const ClassUse use : every_use) {
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{"cat", "dog"}, {"crane", "", "crane", ""}, {}}) {
      const ClassMatch found = match(names, names, use);

      BOOST_TEST(found.numbering.empty());
      BOOST_TEST(found.note.empty(), found.note);
    }
  }
}

BOOST_AUTO_TEST_CASE(another_order_is_matched_by_name_in_every_use) {
  for (const ClassUse use : every_use) {
    const ClassMatch found = match({"cat", "dog", "owl"}, {"owl", "dog", "cat"}, use);

    BOOST_TEST(found.numbering == (ClassNumbering{2, 1, 0}), boost::test_tools::per_element());
    BOOST_TEST(says(found.note,
                    "split val of data has 3 of the 3 classes of w.h5, 2 with other "
                    "numbers (\"owl\" is 2, not 0)"),
               found.note);
  }
}

BOOST_AUTO_TEST_CASE(some_of_the_classes_are_enough_to_evaluate_but_not_to_train) {
  const ClassMatch found = match({"cat", "dog", "owl"}, {"dog", "owl"});
  const ClassMatch first = match({"cat", "dog", "owl"}, {"cat", "dog"});

  BOOST_TEST(found.numbering == (ClassNumbering{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(first.numbering == (ClassNumbering{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(says(first.note, "has 2 of the 3 classes of w.h5;"), first.note);
  for (const ClassUse use : {ClassUse::initial_weights, ClassUse::resume}) {
    const Failure failure = refusal({"cat", "dog", "owl"}, {"dog", "owl"}, use);
    BOOST_TEST(failure.says("only w.h5 has \"cat\": 1 of its 3"), failure.text);
  }
}

BOOST_AUTO_TEST_CASE(classes_that_the_network_has_not_are_refused_and_named) {
  for (const ClassUse use : every_use) {
    const Failure larger = refusal({"cat", "dog"}, {"cat", "dog", "hen"}, use);
    const Failure other = refusal({"cat", "dog"}, {"ant", "bee", "cow", "hen", "dog"}, use);

    BOOST_TEST(larger.says("only split val of data has \"hen\": 1 of its 3"), larger.text);
    BOOST_TEST(other.says("has \"ant\", \"bee\", \"cow\", ...: 4 of its 5; only w.h5 has \"cat\""),
               other.text);
  }
  BOOST_TEST(refusal({"a"}, {"b"}, ClassUse::initial_weights).says("--init-head new"));
  BOOST_TEST(refusal({"a"}, {"b"}, ClassUse::resume).says("--run-dir"));
  BOOST_TEST(refusal({"a"}, {"b"}).says("--class-names"));
}

BOOST_AUTO_TEST_CASE(names_of_several_classes_are_refused_where_they_must_be_matched) {
  for (const ClassUse use : every_use) {
    BOOST_TEST(
        refusal({"crane", "crane", "dog"}, {"dog", "crane", "crane"}, use).says("\"crane\""));
    BOOST_TEST(refusal({"crane", "dog"}, {"crane", "crane", "dog"}, use).says("\"crane\""));
    BOOST_TEST(refusal({"", "dog"}, {"dog", ""}, use).says("\"\""));
  }
  BOOST_TEST(refusal({"crane", "crane", "dog"}, {"crane", "dog"}).says("\"crane\""));
  // No label of the data is ambiguous.
  BOOST_TEST(
      match({"crane", "crane", "dog", "cat"}, {"cat", "dog"}).numbering == (ClassNumbering{3, 2}),
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(without_the_names_of_one_side_a_note_says_which_has_none) {
  for (const ClassUse use : every_use) {
    const ClassMatch network = match({}, {"cat", "dog"}, use);
    const ClassMatch data = match({"cat", "dog", "owl"}, {}, use);

    BOOST_TEST(network.numbering.empty());
    BOOST_TEST(data.numbering.empty());
    BOOST_TEST(says(network.note, "w.h5 has no class names, split val of data has 2"),
               network.note);
    BOOST_TEST(says(data.note, "split val of data has no class names, w.h5 has 3"), data.note);
  }
}

BOOST_AUTO_TEST_CASE(long_names_and_many_lines_stay_one_short_line) {
  const std::string euros = std::string(39, 'x') + "\xe2\x82\xac\xe2\x82\xac";
  const Failure failure = refusal({"dog"}, {"two\nlines", euros});

  BOOST_TEST(failure.says("\"two lines\", \"" + std::string(39, 'x') + "...\""), failure.text);
  BOOST_TEST(failure.text.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_that_are_not_utf8_stay_different) {
  BOOST_TEST(
      as_utf8({"caf\xe9", "gr\xc3\xbcn"}) == (std::vector<std::string>{"caf\\xe9", "gr\xc3\xbcn"}),
      boost::test_tools::per_element());
}
