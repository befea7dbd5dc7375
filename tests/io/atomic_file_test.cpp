#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::size_t entries(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), {}));
}

std::vector<std::string> calls;  ///< of the functions below, in order
bool flush_fails = false;
int sync_error = 0;  ///< of each fsync(); 0: none
int link_error = 0;  ///< of each symlinkat(); 0: none

}  // namespace

extern "C" int fsync(int file) {
  struct stat facts {};
  ::fstat(file, &facts);
  calls.emplace_back(S_ISDIR(facts.st_mode) ? "fsync of the directory" : "fsync of the file");
  if (!flush_fails && sync_error == 0) return static_cast<int>(::syscall(SYS_fsync, file));
  errno = flush_fails ? EIO : sync_error;
  return -1;
}

extern "C" int symlinkat(const char* target, int directory, const char* path) noexcept {
  if (link_error == 0) {
    return static_cast<int>(::syscall(SYS_symlinkat, target, directory, path));
  }
  errno = link_error;
  return -1;
}

extern "C" int renameat(int from, const char* old, int to, const char* now) noexcept {
  calls.emplace_back("rename");
  return static_cast<int>(::syscall(SYS_renameat2, from, old, to, now, 0));
}

BOOST_AUTO_TEST_CASE(a_file_is_replaced_completely) {
  const TemporaryDirectory directory;
  write_file(directory / "config.ini", "old");

  write_text_atomically(directory / "config.ini", "new and longer");

  BOOST_TEST(read_file(directory / "config.ini") == "new and longer");
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(parts_are_written_in_a_row) {
  const TemporaryDirectory directory;
  const std::string view = "two ";

  write_parts_atomically(
      directory / "x",
      {{.bytes = "one ", .view = std::as_bytes(std::span(view))}, {.bytes = "three"}});

  BOOST_TEST(read_file(directory / "x") == "one two three");
}

BOOST_AUTO_TEST_CASE(the_old_file_remains_until_the_writer_is_done) {
  const TemporaryDirectory directory;
  write_file(directory / "x", "old");

  write_atomically(directory / "x", [&](TemporaryFile& temporary) {
    temporary.append("who");
    BOOST_TEST(read_file(directory / "x") == "old");
    BOOST_TEST(std::filesystem::path(temporary.path()).parent_path() ==
               std::filesystem::path(directory.path()));
    temporary.append("le");
  });

  BOOST_TEST(read_file(directory / "x") == "whole");
}

BOOST_AUTO_TEST_CASE(a_writer_that_throws_changes_no_file) {
  const TemporaryDirectory directory;
  write_file(directory / "x", "old");

  BOOST_CHECK_THROW(write_atomically(directory / "x",
                                     [](TemporaryFile& temporary) {
                                       temporary.append("half");
                                       throw std::runtime_error("disk full");
                                     }),
                    std::runtime_error);

  BOOST_TEST(read_file(directory / "x") == "old");
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(a_power_failure_leaves_the_old_file_or_all_of_the_new_one) {
  const TemporaryDirectory directory;
  calls.clear();

  write_text_atomically(directory / "x", "new");

  BOOST_TEST(
      (calls == std::vector<std::string>{"fsync of the file", "rename", "fsync of the directory"}));
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_flushed_is_cannot_write_and_keeps_the_old_file) {
  const TemporaryDirectory directory;
  write_file(directory / "x", "old");
  flush_fails = true;

  BOOST_CHECK_EXCEPTION(
      write_text_atomically(directory / "x", "new"), Error,
      [](const Error& error) { return error.status() == ExitStatus::cannot_write; });

  flush_fails = false;
  BOOST_TEST(read_file(directory / "x") == "old");
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(a_missing_directory_is_cannot_write_with_the_reason) {
  const TemporaryDirectory directory;

  BOOST_CHECK_EXCEPTION(
      write_text_atomically(directory / "no/x", "text"), Error, [](const Error& error) {
        return error.status() == ExitStatus::cannot_write &&
               std::string(error.what()).find("No such file") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(a_temporary_file_is_removed_unless_it_is_published) {
  const TemporaryDirectory directory;
  for (const bool publishes : {false, true}) {
    TemporaryFile temporary(directory / "x");
    temporary.append("new");
    BOOST_TEST(!std::filesystem::exists(directory / "x"));
    temporary.flush();
    if (publishes) temporary.publish();
  }

  BOOST_TEST(read_file(directory / "x") == "new");
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(a_file_that_has_a_second_name_or_is_a_link_is_not_taken) {
  const TemporaryDirectory directory;
  const TemporaryDirectory other;
  write_file(other / "precious", "kept");
  std::filesystem::create_hard_link(other / "precious", directory / "hard");
  std::filesystem::create_symlink(other / "precious", directory / "soft");

  for (const char* name : {"hard", "soft"}) {
    BOOST_CHECK_EXCEPTION(
        TemporaryFile(directory / "x", directory / name), Error,
        [](const Error& error) { return error.status() == ExitStatus::cannot_write; });
  }

  BOOST_TEST(read_file(other / "precious") == "kept");
  BOOST_TEST(std::filesystem::hard_link_count(other / "precious") == 2u);
  BOOST_TEST(entries(directory.path()) == 2u);
}

BOOST_AUTO_TEST_CASE(a_link_is_replaced) {
  const TemporaryDirectory directory;
  write_file(directory / "a", "first");
  write_file(directory / "b", "second");

  BOOST_TEST(replace_file_link(directory / "latest", "a").empty());
  BOOST_TEST(replace_file_link(directory / "latest", "b").empty());

  BOOST_TEST(read_file(directory / "latest") == "second");
  BOOST_TEST(std::filesystem::read_symlink(directory / "latest") == "b");
  BOOST_TEST(entries(directory.path()) == 3u);
}

BOOST_AUTO_TEST_CASE(without_symbolic_links_a_text_file_holds_the_name) {
  const TemporaryDirectory directory;
  write_file(directory / "a.h5", "first");
  replace_file_link(directory / "latest", "a.h5");

  link_error = EPERM;
  const std::string reason = replace_file_link(directory / "latest", "b.h5");
  link_error = 0;

  BOOST_TEST(reason == "Operation not permitted");
  BOOST_TEST(
      std::filesystem::is_regular_file(std::filesystem::symlink_status(directory / "latest")));
  BOOST_TEST(read_file(directory / "latest") == "b.h5\n");
  BOOST_TEST(entries(directory.path()) == 2u);

  BOOST_TEST(replace_file_link(directory / "latest", "a.h5").empty());
  BOOST_TEST(std::filesystem::read_symlink(directory / "latest") == "a.h5");
}

BOOST_AUTO_TEST_CASE(a_file_system_that_cannot_sync_still_gets_the_file) {
  const TemporaryDirectory directory;
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    sync_error = error;
    write_text_atomically(directory / "x", "new");
    sync_error = 0;
    BOOST_TEST(read_file(directory / "x") == "new");
  }

  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    sync_error = error;
    BOOST_CHECK_THROW(write_text_atomically(directory / "y", "new"), Error);
    sync_error = 0;
    BOOST_TEST(!std::filesystem::exists(directory / "y"));
  }
}

BOOST_AUTO_TEST_CASE(special_files_are_not_replaced) {
  const TemporaryDirectory directory;
  BOOST_REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);

  BOOST_CHECK_THROW(write_text_atomically(directory / "fifo", "new"), Error);
  BOOST_CHECK_THROW(replace_file_link(directory / "fifo", "a"), Error);

  BOOST_TEST(std::filesystem::is_fifo(directory / "fifo"));
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(stale_temporaries_are_removed_and_all_else_is_kept) {
  const TemporaryDirectory directory;
  const std::string name = ".lockstep-tmp-0123456789abcdef0123456789abcdef";
  write_file(directory / name, "half a checkpoint");
  // Other programs', such as the temporary files of editors and package managers.
  const std::vector<std::string> others{".step-00000001.h5.tmp-1-elsewhere",
                                        ".config.tmp-Y",
                                        "step-00000001.h5",
                                        ".hidden",
                                        ".lockstep-tmp-notes",
                                        name + "0",
                                        name.substr(1)};
  for (const std::string& other : others) write_file(directory / other, "somebody's");
  std::filesystem::create_directory(directory / (name.substr(0, name.size() - 1) + "0"));

  remove_stale_temporaries(directory.path());
  remove_stale_temporaries(directory / "absent");

  BOOST_TEST(!std::filesystem::exists(directory / name));
  for (const std::string& other : others) BOOST_TEST(read_file(directory / other) == "somebody's");
  BOOST_TEST(entries(directory.path()) == others.size() + 1);
}

BOOST_AUTO_TEST_CASE(stale_temporaries_of_other_users_are_kept) {
  if (::geteuid() != 0) {
    std::fprintf(stderr, "skipped: only root can make another user's file\n");
    return;
  }
  const TemporaryDirectory directory;
  const std::string name = directory / ".lockstep-tmp-0123456789abcdef0123456789abcdef";
  write_file(name, "somebody's");
  BOOST_REQUIRE(::chown(name.c_str(), 65534, 65534) == 0);

  remove_stale_temporaries(directory.path());

  BOOST_TEST(read_file(name) == "somebody's");
}

BOOST_AUTO_TEST_CASE(temporaries_have_names_that_nobody_can_guess) {
  const TemporaryDirectory directory;

  const TemporaryFile one(directory / "x");
  const TemporaryFile other(directory / "x");

  BOOST_TEST(one.path() != other.path());
  remove_stale_temporaries(directory.path());
  BOOST_TEST(entries(directory.path()) == 0u);  // they are recognized
}

BOOST_AUTO_TEST_CASE(a_temporary_that_another_process_has_replaced_is_not_published) {
  const TemporaryDirectory directory;
  write_file(directory / "x", "old");
  write_file(directory / "victim", "kept");

  BOOST_CHECK_EXCEPTION(
      write_atomically(directory / "x",
                       [&](TemporaryFile& temporary) {
                         std::filesystem::remove(temporary.path());
                         std::filesystem::create_symlink("victim", temporary.path());
                         temporary.append("new");
                       }),
      Error, [](const Error& error) { return error.status() == ExitStatus::cannot_write; });

  BOOST_TEST(read_file(directory / "x") == "old");
  BOOST_TEST(read_file(directory / "victim") == "kept");
}

BOOST_AUTO_TEST_CASE(a_published_file_has_the_mode_that_the_umask_leaves) {
  const TemporaryDirectory directory;
  for (const mode_t mask : {mode_t{022}, mode_t{077}, mode_t{002}}) {
    const mode_t before = ::umask(mask);
    write_text_atomically(directory / "x", "new");
    ::umask(before);
    struct stat status {};
    BOOST_REQUIRE(::stat((directory / "x").c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777U) == (0666U & ~mask));
  }
}
