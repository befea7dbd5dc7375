#include "lockstep/data/idx.hpp"

#include "lockstep/core/error.hpp"

#include <zlib.h>

#include <boost/test/unit_test.hpp>
#include <string>

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string word(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

/// Two images of 2x3 pixels, values 0 to 11.
std::string good_images() {
  std::string text = word(0x00000803) + word(2) + word(2) + word(3);
  for (int i = 0; i < 12; ++i) text.push_back(static_cast<char>(i));
  return text;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  BOOST_REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) ==
                Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  BOOST_REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void check_refused(const std::string& text, const std::string& reason) {
  BOOST_TEST_CONTEXT(reason) {
    BOOST_CHECK_EXCEPTION(
        (void)parse_idx(bytes_of(text), "some-file"), Error, [&](const Error& error) {
          BOOST_TEST_MESSAGE(error.what());
          return error.status() == ExitStatus::bad_input &&
                 std::string(error.what()).find("some-file") != std::string::npos &&
                 std::string(error.what()).find(reason) != std::string::npos;
        });
  }
}

void check_good(const IdxFile& file) {
  const std::vector<std::uint32_t> dims{2, 2, 3};
  BOOST_TEST(file.dims == dims, boost::test_tools::per_element());
  BOOST_REQUIRE_EQUAL(file.values.size(), 12);
  for (std::size_t i = 0; i < 12; ++i)
    BOOST_TEST(std::to_integer<std::size_t>(file.values[i]) == i);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_plain_file_is_read) {
  check_good(parse_idx(bytes_of(good_images()), "some-file"));
}

BOOST_AUTO_TEST_CASE(a_gzip_file_is_read) {
  check_good(parse_idx(bytes_of(gzip(good_images())), "some-file"));
}

BOOST_AUTO_TEST_CASE(every_truncation_is_refused) {
  for (const std::string& whole : {good_images(), gzip(good_images())}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      BOOST_TEST_CONTEXT("cut to " << size << " of " << whole.size()) {
        BOOST_CHECK_EXCEPTION(
            (void)parse_idx(bytes_of(whole.substr(0, size)), "some-file"), Error,
            [](const Error& error) { return error.status() == ExitStatus::bad_input; });
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(trailing_data_are_refused) {
  check_refused(good_images() + "x", "does not end after the 12 bytes");
  check_refused(gzip(good_images() + "x"), "does not end after the 12 bytes");
  check_refused(gzip(good_images()) + "x", "does not end after the 12 bytes");
  check_refused(gzip(good_images()) + gzip(good_images()), "does not end after the 12 bytes");
}

BOOST_AUTO_TEST_CASE(other_types_and_ranks_are_refused) {
  check_refused(word(0x00000D03) + word(1), "0x00000d03");
  check_refused(word(0x00000800), "not an IDX file");
  check_refused(word(0x00000804), "not an IDX file");
  check_refused("\x89PNG....", "not an IDX file");
}

BOOST_AUTO_TEST_CASE(a_header_with_huge_extents_allocates_no_memory) {
  const std::string four_tib = word(0x00000803) + word(0x10000) + word(0x10000) + word(0x400);

  check_refused(four_tib + "abc", "announces 4398046511104 bytes");
  check_refused(gzip(four_tib + "abc"), "announces 4398046511104 bytes");
}

BOOST_AUTO_TEST_CASE(extents_whose_product_overflows_are_refused) {
  check_refused(word(0x00000803) + word(~0u) + word(~0u) + word(~0u), "overflow");
}

BOOST_AUTO_TEST_CASE(damaged_gzip_data_are_refused) {
  const std::string whole = gzip(good_images());
  std::string wrong_checksum = whole;
  wrong_checksum[whole.size() - 8] ^= 1;
  std::string wrong_method = whole;
  wrong_method[2] ^= 1;

  check_refused(wrong_checksum, "damaged gzip data");
  check_refused(wrong_method, "damaged gzip data");
}

BOOST_AUTO_TEST_CASE(a_file_without_samples_is_read) {
  const IdxFile file = parse_idx(bytes_of(word(0x00000801) + word(0)), "some-file");

  BOOST_TEST(file.values.empty());
}

}  // namespace lockstep
