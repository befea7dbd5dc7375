#include "doctor/finding_checks.hpp"
#include "doctor/measure.hpp"
#include "io/temporary_directory.hpp"
#include "lockstep/doctor/judge.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

using namespace lockstep::doctor;
using lockstep::test::TemporaryDirectory;

namespace {

std::vector<DataFacts> three_nodes() {
  std::vector<DataFacts> nodes;
  for (const char* name : {"node1", "node2", "node3"}) {
    nodes.push_back(
        {.node = name, .shards = 16, .reads = {{.bytes = 1'000'000'000, .seconds = 1}}});
  }
  return nodes;
}

const RunDirectoryFacts good{.path = "/runs", .write_rate = 1e9, .rename_seconds = {1e-3}};
const std::vector<SharedDirectoryFacts> seen{
    {.node = "node2", .sees_file = true, .can_write = true}};

SpaceFacts space(std::uint64_t free) {
  return {.path = "/runs", .model = "resnet50", .checkpoint = 200, .kept = 5, .free = free};
}

std::string stranger_links_to;  ///< in place of each temporary directory; empty: none

}  // namespace

/// Like libc's, but that a stranger may put a link in the place of the directory at once.
extern "C" char* mkdtemp(char* name) noexcept {
  static const auto libc = reinterpret_cast<char* (*)(char*)>(::dlsym(RTLD_NEXT, "mkdtemp"));
  char* const made = libc(name);
  if (made == nullptr || stranger_links_to.empty()) return made;
  ::rmdir(name);
  return ::symlink(stranger_links_to.c_str(), name) == 0 ? name : nullptr;
}

BOOST_AUTO_TEST_CASE(data_that_all_nodes_can_read_is_ok) {
  expect(judge_data("/data", three_nodes()), Verdict::ok, {"16 shards", "1.0 GB/s", "3 nodes"});
}

BOOST_AUTO_TEST_CASE(data_that_one_node_lacks_fails_with_its_name) {
  auto nodes = three_nodes();
  nodes[1].error = "/data holds no shards";
  expect(judge_data("/data", nodes), Verdict::fail, {"on node2: /data holds no shards"});
  nodes = three_nodes();
  nodes[2].shards = 8;
  expect(judge_data("/data", nodes), Verdict::fail, {"16 shards", "8 on node3", "share"});
}

BOOST_AUTO_TEST_CASE(a_node_that_reads_slowly_is_named) {
  auto nodes = three_nodes();
  const std::vector<ReadFacts> slow{{.bytes = 1'000'000'000, .seconds = 10},
                                    {.bytes = 100'000, .seconds = 1},
                                    {.bytes = 1'000'000'000, .seconds = 5}};
  nodes[2].reads = slow;
  BOOST_TEST((slow_readers(nodes) == std::vector<std::string>{"node3"}));
  expect(judge_data("/data", nodes), Verdict::warn,
         {"node3 reads /data at 200 MB/s (the best of 3 measurements: 100 MB/s, 100 kB/s, 200 "
          "MB/s) where other nodes read at 1.0 GB/s",
          "--exclude=node3"});
  nodes[0].reads = slow;
  BOOST_TEST(slow_readers(nodes).empty());  // two of three are usual
  nodes = three_nodes();
  nodes[2].reads = {{.bytes = 1'000, .seconds = 0.09}};
  BOOST_TEST(slow_readers(nodes).empty());  // too short to tell
}

BOOST_AUTO_TEST_CASE(a_node_that_reads_slowly_once_is_not_named) {
  auto nodes = three_nodes();
  nodes[2].reads = {{.bytes = 100'000, .seconds = 1},
                    {.bytes = 1'000'000'000, .seconds = 1.1},
                    {.bytes = 1'000'000'000, .seconds = 9}};

  BOOST_TEST(slow_readers(nodes).empty());
  expect(judge_data("/data", nodes), Verdict::ok, {"909 MB/s or more by each of 3 nodes"});
}

BOOST_AUTO_TEST_CASE(a_run_directory_shared_by_all_nodes_is_ok) {
  expect(judge_run_directory(good, seen), Verdict::ok, {"1.0 GB/s", "locks work between nodes"});
  expect(judge_run_directory(good, {}), Verdict::ok, {"locks work"});
  RunDirectoryFacts without_links = good;
  without_links.no_links = "Operation not permitted";
  expect(judge_run_directory(without_links, seen), Verdict::ok,
         {"no symbolic links (Operation not permitted): latest and best will be text files"});
}

BOOST_AUTO_TEST_CASE(a_run_directory_that_cannot_be_written_fails) {
  auto facts = good;
  facts.error = "nothing can be written in /runs (Read-only file system) check --run-dir";
  expect(judge_run_directory(facts, {}), Verdict::fail, {"Read-only"});
}

BOOST_AUTO_TEST_CASE(a_run_directory_that_another_node_does_not_share_fails) {
  auto others = seen;
  others[0].sees_file = false;
  expect(judge_run_directory(good, others), Verdict::fail, {"node2 does not see in /runs"});
  others[0].sees_file = true;
  others[0].can_write = false;
  others[0].error = "Permission denied";
  expect(judge_run_directory(good, others), Verdict::fail, {"node2 cannot write", "Permission"});
}

BOOST_AUTO_TEST_CASE(file_locks_that_do_not_work_are_reported) {
  auto facts = good;
  facts.lock_error = "No locks available";
  expect(judge_run_directory(facts, seen), Verdict::warn,
         {"no file locks (No locks available", "heartbeat", "flock"});
  auto others = seen;
  others[0].got_lock = true;
  expect(judge_run_directory(good, others), Verdict::warn,
         {"do not reach from node to node", "node2", "localflock"});
}

BOOST_AUTO_TEST_CASE(slow_renames_are_reported) {
  auto facts = good;
  facts.rename_seconds = {5, 3, 4};
  expect(judge_run_directory(facts, seen), Verdict::warn,
         {"rename", "3.0 s (the best of 3 measurements: 5.0 s, 3.0 s, 4.0 s)"});
  facts.rename_seconds = {5, 3e-3};
  expect(judge_run_directory(facts, seen), Verdict::ok, {"renamed in 3.0 ms"});
}

BOOST_AUTO_TEST_CASE(free_space_is_compared_with_the_checkpoints_size) {
  expect(judge_space(space(1000)), Verdict::ok, {"5 checkpoints of resnet50"});
  expect(judge_space(space(999)), Verdict::warn, {"5 checkpoints", "--keep"});
  expect(judge_space(space(199)), Verdict::fail, {"no room for one", "--run-dir"});
  auto quota = space(10000);
  quota.refused = "Disk quota exceeded";
  expect(judge_space(quota), Verdict::fail, {"Disk quota exceeded"});
}

BOOST_AUTO_TEST_CASE(the_probe_of_a_run_directory_leaves_no_file) {
  const TemporaryDirectory directory;
  {
    const RunDirectoryProbe probe(directory / "runs/resnet50");

    expect(judge_run_directory(probe.facts(), {}), Verdict::ok, {});
    BOOST_TEST(probe.facts().path == directory.path());
    const SharedDirectoryFacts other = look_into_run_directory(probe.path(), "node2");
    BOOST_TEST(other.sees_file);
    BOOST_TEST(other.can_write);
    BOOST_TEST(!other.got_lock);
    const SpaceFacts facts = probe.measure_space({.checkpoint = 1000, .kept = 1});
    BOOST_TEST(facts.free > 0u);
    BOOST_TEST(facts.refused == "");
  }
  BOOST_TEST(std::filesystem::is_empty(directory.path()));
}

BOOST_AUTO_TEST_CASE(a_link_in_place_of_the_probe_is_not_followed) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "precious");
  std::filesystem::permissions(directory / "precious", std::filesystem::perms::owner_all);
  stranger_links_to = directory / "precious";
  {
    const RunDirectoryProbe probe(directory / "run");

    expect(judge_run_directory(probe.facts(), {}), Verdict::fail, {"cannot create a file"});
    BOOST_TEST(probe.measure_space({.checkpoint = 1000, .kept = 1}).refused == "");
  }
  stranger_links_to.clear();

  BOOST_TEST((std::filesystem::status(directory / "precious").permissions() ==
              std::filesystem::perms::owner_all));
  BOOST_TEST(std::filesystem::is_empty(directory / "precious"));
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_created_is_reported) {
  const RunDirectoryProbe probe("/proc/nowhere/run");

  expect(judge_run_directory(probe.facts(), {}), Verdict::fail, {"/proc", "--run-dir"});
  BOOST_TEST(probe.path() == "");
}
