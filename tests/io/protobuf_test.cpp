#include <boost/test/unit_test.hpp>

#include "io/byte_text.hpp"
#include "lockstep/io/protobuf.hpp"

using namespace lockstep::protobuf;
using lockstep::test::hex;

// The examples of https://protobuf.dev/programming-guides/encoding.
BOOST_AUTO_TEST_CASE(the_examples_of_the_specification_are_encoded_as_there) {
  BOOST_TEST(hex(varint(1)) == "01");
  BOOST_TEST(hex(varint_field(1, 150)) == "08 96 01");
  BOOST_TEST(hex(bytes_field(2, "testing")) == "12 07 74 65 73 74 69 6e 67");
  BOOST_TEST(hex(bytes_field(3, varint_field(1, 150))) == "1a 03 08 96 01");
}

BOOST_AUTO_TEST_CASE(numbers_of_any_size_are_encoded) {
  BOOST_TEST(hex(varint(0)) == "00");
  BOOST_TEST(hex(varint(127)) == "7f");
  BOOST_TEST(hex(varint(128)) == "80 01");
  BOOST_TEST(hex(varint(~std::uint64_t{0})) == "ff ff ff ff ff ff ff ff ff 01");
  BOOST_TEST(hex(varint_field(16, 1)) == "80 01 01");
}

BOOST_AUTO_TEST_CASE(floating_point_numbers_are_little_endian) {
  BOOST_TEST(hex(float_field(2, 1.0F)) == "15 00 00 80 3f");
  BOOST_TEST(hex(double_field(1, -2.0)) == "09 00 00 00 00 00 00 00 c0");
}

BOOST_AUTO_TEST_CASE(a_header_and_its_bytes_are_a_field) {
  BOOST_TEST(hex(bytes_header(7, 300)) == "3a ac 02");
  BOOST_TEST(hex(bytes_header(4, 3) + "abc") == hex(bytes_field(4, "abc")));
}
