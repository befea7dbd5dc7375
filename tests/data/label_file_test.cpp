#include "data/label_file.hpp"

#include "data/shard_fixture.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<std::string> images{"val_1.JPEG", "val_2.JPEG", "val_3.JPEG"};
const std::vector<std::string> classes{"n01", "n02", "n03"};
const std::vector<std::int32_t> expected{2, 0, 2};

std::vector<std::int32_t> labels_of(const std::string& text, const ClassIds* ids = nullptr) {
  return parse_labels({.path = "labels.txt", .text = text},
                      {.images = images, .classes = classes, .class_ids = ids});
}

void check_refused(const std::string& text, const std::string& reason,
                   const ClassIds* ids = nullptr) {
  const Failure failure = failure_of([&] { (void)labels_of(text, ids); });
  BOOST_TEST(failure.says("labels.txt"), failure.text);
  BOOST_TEST(failure.says(reason), failure.text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_format_gives_the_same_labels) {
  const ClassIds ids{{1, "n03"}, {2, "n02"}, {3, "n01"}};
  for (const char* text : {"ImageId,PredictionString\nval_2,n01 1 2 3 4 n01 5 6 7 8 \nval_1,n03 85 "
                           "1 499 272\nval_3,n03",
                           "val_1.JPEG n03\nval_2.JPEG n01\nval_3.JPEG n03\n",
                           "\xEF\xBB\xBFval_1,n03\r\n\r\nval_2 , n01 \r\nval_3,\tn03\r\n",
                           "val/val_1.JPEG 2\nval/val_2.JPEG 0\nval/val_3.JPEG n03\n"}) {
    BOOST_TEST(labels_of(text) == expected, boost::test_tools::per_element());
  }
  BOOST_TEST(labels_of("1\n3\n1\n", &ids) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_class_with_the_name_of_a_number_is_found_by_its_name) {
  const std::vector<std::string> numbers{"0", "10", "2"};  // sorted as text

  const auto labels = parse_labels({.path = "labels.txt", .text = "val_1 10\nval_2 2\nval_3 1\n"},
                                   {.images = images, .classes = numbers});

  BOOST_TEST(labels == (std::vector<std::int32_t>{1, 2, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_image_name_may_have_blanks) {
  const std::vector<std::string> names{"my cat.png"};

  const auto labels = parse_labels({.path = "labels.txt", .text = "my cat.png n02\n"},
                                   {.images = names, .classes = classes});

  BOOST_TEST(labels == std::vector<std::int32_t>{1}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(each_image_needs_one_label_and_each_label_an_image) {
  check_refused("val_1 0\nval_3 0\n", "no label for 1 of 3 images, such as val_2.JPEG");
  check_refused("val_1 0\nval_2 0\nval_3 0\nval_9 0\nval_8 1\n",
                "labels 2 images that are not there, such as val_9 in line 4");
  check_refused("val_1 0\nval_2 0\nval_3 0\nval_1.JPEG 0\n", "line 4 gives val_1.JPEG a second");
  check_refused("val_1 n01\nval_2 n04\nval_3 n01\n", "line 2 gives val_2 the class 'n04'");
  check_refused("val_1 n01\nval_2 3\nval_3 n01\n", "nor a number from 0 to 2");
  check_refused("val_1 n01\nval_2 -1\nval_3 n01\n", "the class '-1'");
}

BOOST_AUTO_TEST_CASE(text_in_no_format_is_refused) {
  check_refused("", "is empty");
  check_refused("\n \r\n", "is empty");
  check_refused("val_1\nval_2 1\n", "line 1 is 'val_1'");
  check_refused("val_1 0\n,,\n", "line 2 is ',,'");
  check_refused("ImageId,PredictionString\nval_1,\n", "line 2 is 'val_1,'");
  check_refused(std::string("val_1 0\nval\0 1\n", 15), "zero byte");
}

BOOST_AUTO_TEST_CASE(numbers_alone_need_the_classes_they_stand_for) {
  const ClassIds ids{{1, "n03"}, {2, "n04"}};
  check_refused("1\n3\n1\n", "--class-ids");
  check_refused("1\n2\n1\n", "by --class-ids class n04", &ids);
  check_refused("1\n7\n1\n", "line 2 is the class 7, which --class-ids lacks", &ids);
  check_refused("1\n1\n", "2 labels for 3 images", &ids);
  check_refused("val_1 n01\n", "drop --class-ids", &ids);
}

BOOST_AUTO_TEST_CASE(class_ids_are_numbers_and_classes) {
  const auto parse = [](const std::string& text) {
    return parse_class_ids({.path = "ids.txt", .text = text});
  };

  BOOST_TEST((parse("1 n02119789\n2,n02100735 English setter\n") ==
              ClassIds{{1, "n02119789"}, {2, "n02100735"}}));
  BOOST_TEST(failure_of([&] { (void)parse("1 n01\n1 n02\n"); }).says("line 2 begins with 1"));
  BOOST_TEST(failure_of([&] { (void)parse("n01 1\n"); }).says("line 1 begins with n01"));
  BOOST_TEST(failure_of([&] { (void)parse("1\n"); }).says("line 1 is '1'"));
}

BOOST_AUTO_TEST_CASE(names_are_found_by_class) {
  const NamedText file{.path = "names.txt",
                       .text = "n02 goldfish, Carassius auratus\nn01 tench\nn03 shark\nn04 ray\n"};
  const std::vector<std::string> names{"tench", "goldfish, Carassius auratus", "shark"};

  BOOST_TEST(names_of(classes, file) == names, boost::test_tools::per_element());

  const auto refused = [&](const std::string& text) {
    return failure_of([&] { (void)names_of(classes, {.path = "names.txt", .text = text}); });
  };
  BOOST_TEST(refused("n01 tench\nn03 shark\n").says("does not name class n02"));
  BOOST_TEST(refused("n01 tench\nn02\n").says("line 2 is 'n02'"));
  BOOST_TEST(refused("n01 tench\nn01 shark\n").says("line 2 names n01, as line 1 does"));
}
