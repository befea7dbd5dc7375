#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/restart_record.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

RestartRecord restart_of(const std::string& job, const std::string& checkpoint) {
  return {.job = job, .status = 70, .checkpoint = checkpoint, .time = "2026-11-25T10:00:00"};
}

bool is_cannot_write(const Error& error) {
  return error.status() == ExitStatus::cannot_write;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_line_has_the_words_that_apply) {
  RestartRecord record = restart_of("7", "none");
  BOOST_TEST(format_restart(record) == "7 70 none 2026-11-25T10:00:00");

  record.crashed = record.unlogged = record.preempted = record.in_job = true;
  record.left_out = {"n1"};
  record.named = {"n2", "n3"};

  BOOST_TEST(
      format_restart(record) ==
      "7 70 none 2026-11-25T10:00:00 crash unlogged preempted in-job left-out=n1 named=n2,n3");
}

BOOST_AUTO_TEST_CASE(a_line_is_read_as_it_was_written) {
  const std::string line =
      "7_2 139 step-00000020.h5 2026-11-25T10:00:00 crash in-job left-out=n1,n4 named=n2";

  const RestartRecord record = parse_restart(line);

  BOOST_TEST(record.job == "7_2");
  BOOST_TEST(record.status == 139);
  BOOST_TEST(record.crashed);
  BOOST_TEST(!record.unlogged);
  BOOST_TEST(format_restart(record) == line);
}

BOOST_AUTO_TEST_CASE(an_edited_line_keeps_defaults) {
  for (const char* line : {"", "7", "7 x", "7 70 none", "7 70 none then named= other=n1"}) {
    const RestartRecord record = parse_restart(line);

    BOOST_TEST(record.named.empty(), line);
    BOOST_TEST(!record.crashed, line);
  }
}

BOOST_AUTO_TEST_CASE(what_a_later_restart_has_left_behind_counts_no_more) {
  std::vector<RestartRecord> records{restart_of("7", "none"), restart_of("7", "none"),
                                     restart_of("7", "none")};
  records[0].unlogged = true;
  records[1].preempted = true;

  const RestartCounts counts = count_restarts(records, "7", "none");

  BOOST_TEST(counts.all == 3);
  BOOST_TEST(counts.unlogged == 0);
  BOOST_TEST(counts.stalled == 2);
  BOOST_TEST(count_restarts(records, "7", "step-00000007.h5").stalled == 0);
}

BOOST_AUTO_TEST_CASE(only_restarts_of_the_same_submission_count) {
  std::vector<RestartRecord> records{restart_of("7", "none"), restart_of("8", "none"),
                                     restart_of("77", "none")};
  records[0].crashed = records[0].unlogged = true;
  records[0].named = {"n2", "n3"};

  const RestartCounts own = count_restarts(records, "7", "none");
  const RestartCounts other = count_restarts(records, "8", "none");

  BOOST_TEST(own.all == 1);
  BOOST_TEST(own.crashed == 1);
  BOOST_TEST(own.unlogged == 1);
  BOOST_TEST(other.all == 1);
  BOOST_TEST(other.crashed == 0);
  BOOST_TEST(was_named(records, "7", "n3"));
  BOOST_TEST(!was_named(records, "7", "n"));
  BOOST_TEST(!was_named(records, "8", "n3"));
}

BOOST_AUTO_TEST_CASE(a_newer_checkpoint_ends_a_row_of_stalled_restarts) {
  const std::vector<RestartRecord> records{restart_of("7", "none"), restart_of("7", "none"),
                                           restart_of("7", "step-00000010.h5"),
                                           restart_of("8", "none")};

  BOOST_TEST(count_restarts(records, "7", "step-00000010.h5").stalled == 1);
  BOOST_TEST(count_restarts(records, "7", "step-00000020.h5").stalled == 0);
  BOOST_TEST(count_restarts(std::span(records).first(2), "7", "none").stalled == 2);
}

BOOST_AUTO_TEST_CASE(records_are_appended) {
  const TemporaryDirectory directory;
  const OpenDirectory run(directory.path());
  BOOST_TEST(read_restarts(run).empty());

  append_restart(run, restart_of("7", "none"));
  append_restart(run, restart_of("8", "none"));

  BOOST_TEST(read_file(directory / "restarts") ==
             "7 70 none 2026-11-25T10:00:00\n8 70 none 2026-11-25T10:00:00\n");
  BOOST_TEST(read_restarts(run).size() == 2);
}

BOOST_AUTO_TEST_CASE(only_a_file_of_the_run_directory_alone_is_read_or_written) {
  const TemporaryDirectory directory;
  const std::string made = directory / "run";
  const std::string victim = directory / "victim";
  const std::string name = made + "/restarts";
  std::filesystem::create_directory(made);
  const OpenDirectory run(made);
  write_file(victim, "kept");
  const auto check = [&] {
    BOOST_CHECK_EXCEPTION(static_cast<void>(read_restarts(run)), Error, is_cannot_write);
    BOOST_CHECK_EXCEPTION(append_restart(run, restart_of("7", "none")), Error, is_cannot_write);
    BOOST_TEST(read_file(victim) == "kept");
    std::filesystem::remove(name);
  };

  std::filesystem::create_symlink(victim, name);
  check();
  std::filesystem::create_hard_link(victim, name);
  check();
  std::filesystem::create_symlink(directory / "absent", name);
  check();
  BOOST_TEST(!std::filesystem::exists(directory / "absent"));
  BOOST_REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
  check();
  std::filesystem::create_directory(name);
  check();
}
