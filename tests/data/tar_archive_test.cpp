#include "data/tar_archive.hpp"

#include "data/archive_file.hpp"
#include "data/shard_fixture.hpp"
#include "data/tar_fixture.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Found {
  std::string name;
  std::string bytes;
  std::string special = {};
  friend bool operator==(const Found&, const Found&) = default;
};

/// The entries of `text` but folders; with `before`, in an archive that begins after as many other
/// bytes.
std::vector<Found> files_in(const std::string& text, std::size_t before = 0) {
  const std::string file = std::string(before, 'x') + text + "after the archive";
  const std::uint64_t end = before + text.size();
  const auto read = [&](std::uint64_t offset, std::span<std::byte> bytes) {
    BOOST_REQUIRE_LE(offset + bytes.size(), end);
    BOOST_REQUIRE_GE(offset, before);
    std::copy_n(reinterpret_cast<const std::byte*>(file.data()) + offset, bytes.size(),
                bytes.begin());
  };
  std::vector<Found> found;
  for_each_member(
      {.path = "some.tar", .begin = before, .end = end, .read = read},
      [&](const TarMember& member) {
        BOOST_REQUIRE_LE(member.offset + member.bytes, end);
        found.push_back({member.name, file.substr(member.offset, member.bytes), member.special});
      });
  return found;
}

void check_refused(const std::string& text, const std::string& reason) {
  const Failure failure = failure_of([&] { (void)files_in(text); });
  BOOST_TEST(static_cast<int>(failure.status) == 65, reason);
  BOOST_TEST(failure.says("some.tar"), failure.text);
  BOOST_TEST(failure.says(reason), failure.text);
}

std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::string record = std::to_string(rest.size() + 1) + rest;
  // The length counts its own digits.
  while (std::to_string(record.size()) != record.substr(0, record.find(' '))) {
    record = std::to_string(record.size()) + rest;
  }
  return record;
}

const std::string long_name = std::string(150, 'd') + "/" + std::string(120, 'f') + ".jpg";
const std::string gnu("ustar  \0", 8);

}  // namespace

BOOST_AUTO_TEST_CASE(entries_are_found_in_order_and_folders_skipped) {
  const std::string archive =
      tar_entry({.name = "b.jpg", .bytes = std::string(513, 'b')}) +
      tar_entry({.name = "folder/", .bytes = "", .type = '5'}) +
      tar_entry({.name = "link.jpg", .bytes = "", .type = '2'}) +
      tar_entry({.name = "same.jpg", .bytes = "", .type = '1'}) +
      tar_entry({.name = "a.jpg", .bytes = ""}) +
      tar_entry({.name = "old.jpg", .bytes = "1", .type = '\0', .magic = ""}) +
      tar_entry({.name = "old-folder/", .bytes = "", .type = '\0', .magic = ""}) + tar_end();
  const std::vector<Found> expected{{"b.jpg", std::string(513, 'b')},
                                    {"link.jpg", "", "a symbolic link"},
                                    {"same.jpg", "", "a hard link"},
                                    {"a.jpg", ""},
                                    {"old.jpg", "1"}};

  BOOST_TEST((files_in(archive) == expected));
  BOOST_TEST((files_in(archive, 777) == expected));
  // Writers fill a record.
  BOOST_TEST((files_in(archive + std::string(9000, '\0')) == expected));
  BOOST_TEST(files_in(tar_end()).empty());
}

BOOST_AUTO_TEST_CASE(an_archive_without_its_end_or_with_more_after_it_is_refused) {
  const std::string entry = tar_entry({.name = "a.jpg", .bytes = "a"});

  check_refused("", "is empty");
  check_refused(entry, "without the two blocks of zeros");
  check_refused(entry + std::string(512, '\0'), "after one block of zeros");
  check_refused(entry + std::string(512, '\0') + entry + tar_end(), "followed by something else");
  check_refused(entry + tar_end() + entry + tar_end(), "goes on after its end at byte 1024");
  check_refused(entry + tar_end() + std::string(20'000, '\0') + "x", "goes on after its end");
  BOOST_TEST(files_in(entry + tar_end() + std::string(20'000, '\0')).size() == 1U);
}

BOOST_AUTO_TEST_CASE(long_names_are_read_in_each_format) {
  const std::vector<Found> expected{{long_name, "12"}, {"next", "3"}};
  const std::string next = tar_entry({.name = "next", .bytes = "3"}) + tar_end();

  BOOST_TEST((files_in(tar_entry({.name = long_name.substr(151),
                                  .bytes = "12",
                                  .prefix = long_name.substr(0, 150)}) +
                       next)[0]
                  .name == long_name.substr(0, 151) + long_name.substr(151, 100)));
  BOOST_TEST(
      (files_in(tar_entry({.name = "././@LongLink",
                           .bytes = long_name + std::string(1, '\0'),
                           .type = 'L',
                           .magic = gnu}) +
                tar_entry({.name = "short", .bytes = "12", .magic = gnu}) + next) == expected));
  BOOST_TEST((files_in(tar_entry({.name = "PaxHeaders/x",
                                  .bytes = pax("mtime", "1.5") + pax("path", long_name),
                                  .type = 'x'}) +
                       tar_entry({.name = "short", .bytes = "12"}) + next) == expected));
  // GNU's format has times where ustar has the prefix.
  const auto with_times = files_in(
      tar_entry({.name = "a", .bytes = "", .magic = gnu, .prefix = "12345670123"}) + tar_end());
  BOOST_TEST(with_times.at(0).name == "a");
}

BOOST_AUTO_TEST_CASE(large_sizes_are_read_in_each_format) {
  const std::string binary = std::string("\x80\0\0\0\0\0\0\0\0\0\0", 11) + "\x02";
  const std::vector<Found> expected{{"a", "12"}};

  BOOST_TEST((files_in(tar_entry({.name = "a", .bytes = "12", .magic = gnu, .size = binary}) +
                       tar_end()) == expected));
  BOOST_TEST((files_in(tar_entry({.name = "x", .bytes = pax("size", "2"), .type = 'x'}) +
                       tar_entry({.name = "a", .bytes = "12", .size = "00000000000"}) +
                       tar_end()) == expected));
}

BOOST_AUTO_TEST_CASE(a_damaged_archive_is_refused) {
  const std::string first = tar_entry({.name = "a.jpg", .bytes = std::string(600, 'a')});
  const std::string good = first + tar_entry({.name = "b.jpg", .bytes = "b"}) + tar_end();
  std::string flipped = good;
  flipped[first.size() + 3] ^= 1;

  check_refused(flipped, "wrong checksum");
  check_refused("no archive" + std::string(600, 'x'), "is no tar archive");
  check_refused(good.substr(0, 700), "longer than the rest");
  check_refused(good.substr(0, first.size() + 100), "ends in a header");
  check_refused(tar_entry({.name = "a", .bytes = "", .size = "77777777777"}), "longer than");
  check_refused(tar_entry({.name = "a", .bytes = "", .size = std::string(12, '\xFF')}), "no size");
  check_refused(tar_entry({.name = "a", .bytes = "", .size = "12x"}), "no size");
  check_refused(tar_entry({.name = "a", .bytes = "", .type = 'S'}), "sparse");
  for (const std::string& records :
       {std::string("99 path=a\n"), std::string("x path=a\n"), std::string("9 path=a"),
        std::string("3 \n"), std::string("0 "), pax("size", "1x"), pax("GNU.sparse.major", "1")}) {
    check_refused(tar_entry({.name = "x", .bytes = records, .type = 'x'}) + good, "pax header");
  }
  check_refused(
      tar_entry({.name = "x", .bytes = std::string((1 << 20) + 1, 'n'), .type = 'L'}) + good,
      "more than 1 MiB");
}

BOOST_AUTO_TEST_CASE(an_archive_that_became_shorter_is_no_input) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "some.tar") << "0123456789";
  ArchiveFiles archives;
  std::vector<std::byte> bytes(8);
  archives.read(directory / "some.tar", 2, bytes);
  std::filesystem::resize_file(directory / "some.tar", 5);

  const Failure failure = failure_of([&] { archives.read(directory / "some.tar", 2, bytes); });

  BOOST_TEST(static_cast<int>(failure.status) == 66);
  BOOST_TEST(failure.says("ends at byte 5"), failure.text);
}

BOOST_AUTO_TEST_CASE(a_compressed_archive_is_named_as_such) {
  check_refused("\x1F\x8B\x08 more bytes", "compressed by gzip");
  check_refused("BZh91AY", "compressed by bzip2");
  check_refused(
      "\xFD"
      "7zXZ and more",
      "compressed by xz");
  check_refused("\x28\xB5\x2F\xFD and more", "compressed by zstd");
}
