#include "lockstep/data/cifar.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

namespace lockstep {
namespace {

constexpr CifarLayout ten{.label_bytes = 1, .classes = 10};
constexpr CifarLayout hundred{.label_bytes = 2, .classes = 100};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// A record with planes of 10, 20 and 30, except for the last pixel of the last plane.
std::string record(const std::string& labels) {
  std::string text =
      labels + std::string(1024, '\x0a') + std::string(1024, '\x14') + std::string(1024, '\x1e');
  text.back() = '\x63';
  return text;
}

void check_refused(const std::string& text, const CifarLayout& layout, const std::string& reason) {
  BOOST_CHECK_EXCEPTION((void)parse_cifar(bytes_of(text), layout, "some-file"), Error,
                        [&](const Error& error) {
                          BOOST_TEST_MESSAGE(error.what());
                          return error.status() == ExitStatus::bad_input &&
                                 std::string(error.what()).find(reason) != std::string::npos;
                        });
}

}  // namespace

BOOST_AUTO_TEST_CASE(planes_become_interleaved_pixels) {
  const CifarBatch batch = parse_cifar(bytes_of(record("\x07")), ten, "some-file");

  BOOST_REQUIRE_EQUAL(batch.labels.size(), 1);
  BOOST_TEST(batch.labels[0] == 7);
  BOOST_REQUIRE_EQUAL(batch.images.size(), 3072);
  BOOST_TEST(std::to_integer<int>(batch.images[0]) == 10);
  BOOST_TEST(std::to_integer<int>(batch.images[1]) == 20);
  BOOST_TEST(std::to_integer<int>(batch.images[2]) == 30);
  BOOST_TEST(std::to_integer<int>(batch.images[3071]) == 99);
}

BOOST_AUTO_TEST_CASE(the_fine_one_of_two_labels_is_used) {
  const CifarBatch batch =
      parse_cifar(bytes_of(record("\x03\x63") + record("\x04\x05")), hundred, "some-file");

  BOOST_REQUIRE_EQUAL(batch.labels.size(), 2);
  BOOST_TEST(batch.labels[0] == 99);
  BOOST_TEST(batch.labels[1] == 5);
}

BOOST_AUTO_TEST_CASE(a_part_of_a_record_is_refused) {
  check_refused(record("\x07").substr(1), ten,
                "3072 bytes is not a whole number of records of 3073");
  check_refused(record("\x07") + "x", ten, "not a whole number");
  check_refused("", ten, "0 bytes");
}

BOOST_AUTO_TEST_CASE(a_label_out_of_range_is_refused_and_named) {
  check_refused(record("\x07") + record("\x0a"), ten, "sample 1 has label 10");
  check_refused(record("\x03\x64"), hundred, "label 100");
}

}  // namespace lockstep
