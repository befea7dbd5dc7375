#include "data/memory_storage.hpp"

#include "io/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <fstream>
#include <string>

using namespace lockstep;

namespace {

/// A list of mounts in which this file system, whatever it is, has that source.
std::string mounts_with(const test::TemporaryDirectory& directory, const std::string& source) {
  struct stat status {};
  BOOST_REQUIRE(::stat(directory.path().c_str(), &status) == 0);
  std::string path = directory / "mountinfo";
  std::ofstream(path) << "21 1 0:9999 / /proc rw shared:5 - proc proc rw\n36 35 "
                      << major(status.st_dev) << ":" << minor(status.st_dev)
                      << " / /scratch rw,noatime shared:1 - ext4 " << source << " rw\n";
  return path;
}

bool is_on_disk(const std::string& path) {
  constexpr long tmpfs = 0x01021994;
  struct statfs status {};
  return ::statfs(path.c_str(), &status) == 0 && status.f_type != tmpfs;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_shared_memory_directory_is_memory) {
  if (is_on_disk("/dev/shm")) {
    fmt::print("skipped: /dev/shm is on a disk\n");
    return;
  }
  BOOST_TEST(memory_file_system("/dev/shm") == "tmpfs");
  BOOST_TEST(has_size("/dev/shm"));
}

BOOST_AUTO_TEST_CASE(a_disk_is_no_memory_but_a_memory_disk_is) {
  const test::TemporaryDirectory directory;
  if (!is_on_disk(directory.path())) {
    fmt::print("skipped: TMPDIR is memory\n");
    return;
  }

  BOOST_TEST(memory_file_system(directory.path(), mounts_with(directory, "/dev/sda1")).empty());
  BOOST_TEST(memory_file_system(directory.path(), mounts_with(directory, "/dev/zram0")) ==
             "/dev/zram0");
}

BOOST_AUTO_TEST_CASE(what_cannot_be_asked_is_not_called_memory) {
  BOOST_TEST(memory_file_system("/nonexistent").empty());
  BOOST_TEST(memory_file_system("/", "/nonexistent").find("dev") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(files_have_at_most_the_nodes_memory) {
  const MemoryLimit limit = memory_for_files(1);

  BOOST_TEST(limit.bytes > 0u);
  BOOST_TEST(!limit.source.empty());
}
