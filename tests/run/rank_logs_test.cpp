#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/run/rank_logs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>

using namespace lockstep;
using test::TemporaryDirectory;
using test::write_file;

namespace {

constexpr const char* launch = "2026-11-25 10:00:00";
constexpr const char* gone = "is gone (its node does not answer; last heard of in data)";

std::string log_of(const std::string& directory, int rank) {
  return fmt::format("{}/log/rank-{:05}.log", directory, rank);
}

/// A line that rank 0 or another one logs after the launch.
std::string line(const std::string& text) {
  return "2026-11-25 10:30:00.000 E " + text + "\n";
}

std::string joined(const std::vector<std::string>& hosts) {
  return fmt::format("{}", fmt::join(hosts, " "));
}

/// Four ranks on n2 to n5, of which some say `what` of a host; before the launch, all named n5.
NamedHosts hosts_named_by(const std::map<int, std::string>& says, const std::string& what) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "log");
  for (int rank = 0; rank < 4; ++rank) {
    std::string text = fmt::format(
        "2026-11-25 09:59:59.999 E rank 3 (n5) {}\n2026-11-25 10:00:00.100 I rank {} of 4\n", gone,
        rank);
    if (const auto host = says.find(rank); host != says.end()) {
      text += line(
          fmt::format("no progress: rank 1 ({}, GPU-1) {}; rank 3 (n5) waits", host->second, what));
    }
    write_file(log_of(directory.path(), rank), text);
  }
  return named_hosts(OpenDirectory(directory.path()), launch);
}

LoggedEnd end_of(const std::string& directory, std::uint64_t bytes = 0) {
  return logged_end(OpenDirectory(directory), bytes);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_that_finished_earlier_is_not_finished) {
  const std::string before = line("finished at step 10");
  const std::map<std::string, LoggedEnd> ends{
      {"", LoggedEnd::nothing},
      {line("rank 0 of 4"), LoggedEnd::unfinished},
      {line("stopped on request at step 15"), LoggedEnd::stopped},
      {line("stopped before the time limit at step 15"), LoggedEnd::stopped},
      {line("stopped on request at step 15") + line("slow hosts"), LoggedEnd::stopped},
      {line("finished at step 20"), LoggedEnd::finished},
      {line("nothing to do: step 10 is the last"), LoggedEnd::finished},
      {"2026-11-25 10:30:00.000 I finished at step 20", LoggedEnd::finished}};
  for (const auto& [written, expected] : ends) {
    const TemporaryDirectory directory;
    std::filesystem::create_directory(directory / "log");
    write_file(log_of(directory.path(), 0), before + written);

    BOOST_TEST((end_of(directory.path(), before.size()) == expected), written);
  }
}

BOOST_AUTO_TEST_CASE(a_run_without_a_log_has_logged_nothing) {
  const TemporaryDirectory directory;

  BOOST_TEST((end_of(directory.path()) == LoggedEnd::nothing));
  BOOST_TEST((end_of(directory / "absent") == LoggedEnd::nothing));
  BOOST_TEST(named_hosts(OpenDirectory(directory / "absent"), launch).suspect.empty());
}

BOOST_AUTO_TEST_CASE(a_log_longer_than_a_block_is_read_whole) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "log");
  std::string text;
  while (text.size() < 300000) text += line("epoch 1: loss 0.5");

  write_file(log_of(directory.path(), 0), text + line("finished at step 20") + text);

  BOOST_TEST((end_of(directory.path(), text.size() / 2) == LoggedEnd::finished));
}

BOOST_AUTO_TEST_CASE(most_logs_name_a_host) {
  const NamedHosts most = hosts_named_by({{0, "n3"}, {2, "n3"}, {3, "n3"}}, gone);
  BOOST_TEST(joined(most.unreachable) == "n3");
  BOOST_TEST(joined(most.suspect) == "n3");

  // The rank on a node that is cut off names another one.
  const NamedHosts cut_off = hosts_named_by({{1, "n2"}}, gone);
  BOOST_TEST(cut_off.unreachable.empty());
  BOOST_TEST(cut_off.suspect.empty());

  const NamedHosts half = hosts_named_by({{0, "n3"}, {1, "n3"}}, gone);
  BOOST_TEST(half.suspect.empty());
}

BOOST_AUTO_TEST_CASE(a_host_that_answers_is_only_suspect) {
  for (const char* what :
       {"is gone (its process ended; last heard of in data)", "has been late for 60 s in data",
        "has waited by itself for 60 s in data", "was last heard of 60 s ago, in data",
        "holds other parameters than the other 3"}) {
    const NamedHosts hosts = hosts_named_by({{0, "n3"}, {2, "n3"}, {3, "n3"}}, what);

    BOOST_TEST(hosts.unreachable.empty(), what);
    BOOST_TEST(joined(hosts.suspect) == "n3", what);
  }
  BOOST_TEST(hosts_named_by({{0, "n3"}, {2, "n3"}, {3, "n3"}}, "waits in data").suspect.empty());
}

BOOST_AUTO_TEST_CASE(rank_0_names_slow_hosts) {
  const std::string slow = "is slow: 2.0 times the median rank's; exclude it with --exclude=n4,n7";

  const NamedHosts hosts = hosts_named_by({{0, "n4"}}, slow);

  BOOST_TEST(joined(hosts.slow) == "n4 n7");
  BOOST_TEST(hosts.suspect.empty());
  BOOST_TEST(hosts_named_by({{1, "n4"}}, slow).slow.empty());
}

BOOST_AUTO_TEST_CASE(only_names_of_hosts_are_taken) {
  for (const char* host : {"", "n3 n4", "$(touch x)", "n3;n4", "*"}) {
    const NamedHosts hosts = hosts_named_by({{0, host}, {2, host}, {3, host}}, gone);

    BOOST_TEST(hosts.suspect.empty(), host);
  }
}

BOOST_AUTO_TEST_CASE(logs_are_read_from_files_of_the_run_alone) {
  const TemporaryDirectory directory;
  const std::string made = directory / "run";
  const std::string victim = directory / "victim";
  const std::string entry = log_of(made, 0);
  std::filesystem::create_directories(made + "/log");
  const std::string words = line(fmt::format("rank 7 (n8) {}", gone)) +
                            line("rank 7 (n9) is slow: 2 times; --exclude=n9") +
                            line("finished at step 20");
  write_file(victim, words);
  const auto tells = [&] {
    const NamedHosts hosts = named_hosts(OpenDirectory(made), launch);
    return joined(hosts.unreachable) + joined(hosts.slow) +
           (end_of(made) == LoggedEnd::nothing ? "" : " ended");
  };
  write_file(entry, words);
  BOOST_TEST(tells() == "n8n9 ended");

  const std::array<std::function<void()>, 5> plants{
      [&] { ::mkfifo(entry.c_str(), 0600); },
      [&] { std::filesystem::create_symlink(victim, entry); },
      [&] { std::filesystem::create_hard_link(victim, entry); },
      [&] { std::filesystem::create_directory(entry); },
      [&] { std::filesystem::create_symlink(directory / "absent", entry); }};
  for (const auto& plant : plants) {
    std::filesystem::remove(entry);
    plant();
    BOOST_TEST(tells().empty());
  }

  std::filesystem::remove_all(made + "/log");
  std::filesystem::create_directory(directory / "other");
  write_file(directory / "other/rank-00000.log", words);
  std::filesystem::create_symlink(directory / "other", made + "/log");
  BOOST_TEST(tells().empty());
}
