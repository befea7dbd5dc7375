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
  for (const char* text :
       {"ImageId,PredictionString\nval_2,n01 1 2 3 4 n01 5 6 7 8 \nval_1,n03 85 "
        "1 499 272\nval_3,n03",
        "val_1.JPEG n03\nval_2.JPEG n01\nval_3.JPEG n03\n",
        "val_1,n03\r\n\r\nval_2 , n01 \r\nval_3,\tn03\r\n",
        "val/val_1.JPEG 2\nval/val_2.JPEG 0\nval/val_3.JPEG 2\n",
        "val_1.JPEG\tn03\t0\t0\t62\t-57\nval_2.JPEG\tn01\t1\t2\t3\t4\nval_3 n03 1 2 3 4\n",
        "\"val_1.JPEG\",\"n03\"\nval_2.JPEG,n01\nval_3.JPEG,n03\n"}) {
    BOOST_TEST(labels_of(text) == expected, boost::test_tools::per_element());
  }
  BOOST_TEST(labels_of("1\n3\n1\n", &ids) == expected, boost::test_tools::per_element());
  const ClassIds described{{1, "n03 tench"}, {3, "n01 hot dog"}};
  BOOST_TEST(labels_of("1\n3\n1\n", &described) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(labels_are_names_or_numbers_in_the_whole_file) {
  const std::vector<std::string> numbers{"1", "10", "2"};  // sorted as text
  const auto parse = [&](const std::string& text) {
    return parse_labels({.path = "labels.txt", .text = text},
                        {.images = images, .classes = numbers});
  };

  BOOST_TEST(parse("val_1 10\nval_2 2\nval_3 1\n") == (std::vector<std::int32_t>{1, 2, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(parse("val_1 0\nval_2 0\nval_3 0\n") == (std::vector<std::int32_t>{0, 0, 0}),
             boost::test_tools::per_element());
  for (const char* mixed : {"val_1 0\nval_2 1\nval_3 2\n", "val_1 2\nval_2 2\nval_3 0\n"}) {
    const Failure failure = failure_of([&] { (void)parse(mixed); });
    BOOST_TEST(failure.says("is the name of a class, but 0 (line "), failure.text);
  }
  const std::vector<std::string> padded{"01", "02", "03"};
  const Failure ambiguous = failure_of([&] {
    (void)parse_labels({.path = "labels.txt", .text = "val_1 1\nval_2 2\nval_3 1\n"},
                       {.images = images, .classes = padded});
  });
  BOOST_TEST(ambiguous.says("it may be class 01, or number 1"), ambiguous.text);
  check_refused("val_1 n01\nval_2 1\nval_3 n01\n",
                "n01 (line 1) is the name of a class, but 1 (line 2) is not");
}

BOOST_AUTO_TEST_CASE(names_of_images_and_classes_may_have_blanks_and_commas) {
  const std::vector<std::string> names{"my cat, old.png", "pan 2.png"};
  const std::vector<std::string> kinds{"dog", "hot", "hot dog", "tench, Tinca"};
  for (const char* text : {"my cat, old.png hot dog\npan 2.png tench, Tinca\n",
                           "my cat, old.png,hot dog\nfolder/pan 2.png,tench, Tinca\n",
                           "my cat, old.png\thot dog\npan 2\ttench, Tinca\n",
                           "my cat, old.png hot dog 1 2 3 4\npan 2.png tench, Tinca 1 2 3 4\n"}) {
    const auto labels =
        parse_labels({.path = "labels.txt", .text = text}, {.images = names, .classes = kinds});

    BOOST_TEST(labels == (std::vector<std::int32_t>{2, 3}), boost::test_tools::per_element());
  }
  const Failure failure = failure_of([&] {
    (void)parse_labels({.path = "labels.txt", .text = "pan 2.png hot dogs\nmy cat, old dog\n"},
                       {.images = names, .classes = kinds});
  });
  BOOST_TEST(failure.says("line 1 gives pan 2.png the class 'hot dogs'"), failure.text);
}

BOOST_AUTO_TEST_CASE(kaggles_format_finds_classes_with_blanks) {
  const std::vector<std::string> names{"v0.png", "v1.png"};
  const std::vector<std::string> kinds{"sea", "sea lion"};

  const auto labels = parse_labels(
      {.path = "labels.txt",
       .text = "ImageId,PredictionString\nv0,sea lion 1 2 3 4 sea lion 5 6 7 8\nv1,sea 1 2 3 4\n"},
      {.images = names, .classes = kinds});

  BOOST_TEST(labels == (std::vector<std::int32_t>{1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(each_image_needs_one_label_and_each_label_an_image) {
  check_refused("val_1 0\nval_3 0\n", "no label for 1 of 3 images, such as val_2.JPEG");
  check_refused("val_1 0\nval_2 0\nval_3 0\nval_9 0\nval_8 1\n",
                "labels 2 images that are not there, such as val_9 in line 4");
  check_refused("val_1 0\nval_2 0\nval_3 0\nval_1.JPEG 0\n", "line 4 gives val_1.JPEG a second");
  check_refused("val_1 n01\nval_2 n04\nval_3 n01\n", "line 2 gives val_2 the class 'n04'");
  check_refused("val_1 n01 1 2 3\nval_2 n01 1 2 3 4\nval_3 n01 1 2 3 4\n", "line 1 gives val_1");
  check_refused("val_1 0\nval_2 3\nval_3 0\n", "nor a number from 0 to 2");
  check_refused("val_1 0\nval_2 -1\nval_3 0\n", "the class '-1'");
}

BOOST_AUTO_TEST_CASE(text_in_no_format_is_refused) {
  check_refused("", "is empty");
  check_refused("\n \r\n", "is empty");
  check_refused("val_1\nval_2 1\n", "line 1 is 'val_1'");
  check_refused("val_1 0\n,,\n", "line 2 is ',,'");
  check_refused("ImageId,PredictionString\nval_1,\n", "line 2 is 'val_1,'");
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
              ClassIds{{1, "n02119789"}, {2, "n02100735 English setter"}}));
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
  BOOST_TEST(refused("n01 tench\nn01 shark\n").says("line 2 names n01, as an earlier line does"));
}

BOOST_AUTO_TEST_CASE(a_class_with_blanks_is_named) {
  const std::vector<std::string> kinds{"hot", "hot dog"};

  const auto names = names_of(
      kinds, {.path = "names.txt", .text = "hot dog Sausage in a bun\nhot,of high temperature\n"});

  BOOST_TEST(names == (std::vector<std::string>{"of high temperature", "Sausage in a bun"}),
             boost::test_tools::per_element());
}
