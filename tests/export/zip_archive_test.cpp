#include <boost/test/unit_test.hpp>

#include "export/zip_archive.hpp"
#include "io/byte_text.hpp"
#include "lockstep/core/error.hpp"

#include <sys/mman.h>

#include <cstring>
#include <span>

using namespace lockstep;
using test::hex;
using test::joined;

namespace {

bool is_usage_error(const Error& error) {
  return error.status() == ExitStatus::usage &&
         std::string(error.what()).find("safetensors") != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_entry_is_stored_between_its_headers) {
  const std::string view = "lo";

  const std::string bytes = joined(zip_archive(
      {{.name = "a", .content = {.bytes = "hel", .view = std::as_bytes(std::span(view))}}}));

  // Common to both headers: version 1.0, no flags, stored, 1980-01-01 00:00, CRC-32, sizes, length
  // of the name.
  const std::string common =
      "0a 00 00 00 00 00 00 00 21 00 86 a6 10 36 05 00 00 00 05 00 00 00 01 00";
  const std::string zeros = hex(std::string(29, '\0'));
  BOOST_TEST(hex(bytes) == "50 4b 03 04 " + common + " 21 00 61 46 42 1d 00 " + zeros +
                               " 68 65 6c 6c 6f "
                               "50 4b 01 02 0a 00 " +
                               common +
                               " 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 61 "
                               "50 4b 05 06 00 00 00 00 01 00 01 00 2f 00 00 00 45 00 00 00 00 00");
}

BOOST_AUTO_TEST_CASE(every_content_is_aligned) {
  std::vector<ZipEntry> entries;
  for (int i = 0; i < 70; ++i) {
    entries.push_back({.name = "entry" + std::string(static_cast<std::size_t>(i), 'x'),
                       .content = {.bytes = "content" + std::to_string(i) + "."}});
  }

  const std::string bytes = joined(zip_archive(entries));

  for (int i = 0; i < 70; ++i) {
    BOOST_TEST(bytes.find("content" + std::to_string(i) + ".") % 64 == 0u, i);
  }
}

BOOST_AUTO_TEST_CASE(four_gibibytes_and_too_many_entries_are_refused) {
  // Reserved and not readable: the sizes are checked first.
  constexpr std::size_t size = std::size_t{4} << 30;
  void* memory =
      ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BOOST_REQUIRE(memory != MAP_FAILED);
  const std::span<const std::byte> view(static_cast<const std::byte*>(memory), size);

  BOOST_CHECK_EXCEPTION(static_cast<void>(zip_archive({{.name = "a", .content = {.view = view}}})),
                        Error, is_usage_error);
  BOOST_CHECK_EXCEPTION(static_cast<void>(zip_archive(
                            std::vector<ZipEntry>(65535, ZipEntry{.name = "a", .content = {}}))),
                        Error, is_usage_error);

  ::munmap(memory, size);
}
