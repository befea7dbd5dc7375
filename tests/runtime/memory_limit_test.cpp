#include <boost/test/unit_test.hpp>

#include "core/sanitizers.hpp"
#include "io/temporary_directory.hpp"
#include "lockstep/runtime/memory_limit.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::uint64_t mib = 1 << 20;

/// The kernel's files for a process that uses 100 MiB on a node with 8192 MiB free.
class Kernel final {
 public:
  explicit Kernel(const std::string& groups) {
    for (const char* folder : {"self", "cg/slurm/job_7/step_0", "cg/memory/slurm/job_7"}) {
      std::filesystem::create_directories(files_ / folder);
    }
    write_file(files_ / "self/status",
               "Name:\tlockstep\nVmSize:\t  204800 kB\nVmRSS:\t  102400 kB\nVmData:\t 51200 kB\n");
    write_file(files_ / "self/cgroup", groups);
    write_file(files_ / "meminfo", "MemTotal: 9 kB\nMemAvailable: 8388608 kB\nSwapFree: 0 kB\n");
  }
  void limit(const std::string& file, const std::string& text) { write_file(files_ / file, text); }
  /// The smallest limit.
  [[nodiscard]] MemoryLimit left(int local_size) const {
    const auto limits = memory_left(local_size, files_.path(), files_ / "cg");
    BOOST_REQUIRE(!limits.empty());
    return std::ranges::min(limits, {}, &MemoryLimit::bytes);
  }
  /// The smallest limit of the whole node.
  [[nodiscard]] MemoryLimit node_left(const std::map<std::string, std::string>& variables = {},
                                      int processes = 1) const {
    const auto lookup = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    const auto limits =
        node_memory_left({.count = processes, .lookup = lookup}, files_.path(), files_ / "cg");
    BOOST_REQUIRE(!limits.empty());
    return std::ranges::min(limits, {}, &MemoryLimit::bytes);
  }

 private:
  TemporaryDirectory files_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_process_has_its_share_of_the_node) {
  const Kernel kernel("0::/\n");
  BOOST_TEST(kernel.left(1).bytes == 8192 * mib);
  BOOST_TEST(kernel.left(4).bytes == 2048 * mib);
  BOOST_TEST(kernel.left(4).source == "the node");
  BOOST_TEST(kernel.left(4).processes == 4);
}

BOOST_AUTO_TEST_CASE(a_control_groups_limit_is_the_smallest_up_to_the_root) {
  Kernel kernel("0::/slurm/job_7/step_0\n");
  kernel.limit("cg/slurm/job_7/step_0/memory.max", "max\n");
  BOOST_TEST(kernel.left(2).source == "the node");
  kernel.limit("cg/slurm/job_7/memory.max", std::to_string(1000 * mib));
  BOOST_TEST(kernel.left(2).bytes == 400 * mib);
  BOOST_TEST(kernel.left(2).source == "the control group");
  BOOST_TEST(kernel.left(2).processes == 2);
  kernel.limit("cg/slurm/job_7/step_0/memory.max", std::to_string(600 * mib));
  BOOST_TEST(kernel.left(2).bytes == 200 * mib);
  kernel.limit("cg/slurm/job_7/step_0/memory.max", std::to_string(100 * mib));
  BOOST_TEST(kernel.left(2).bytes == 0u);
}

BOOST_AUTO_TEST_CASE(limits_of_cgroup_v1_are_read) {
  Kernel kernel("9:cpu:/slurm/job_7\n4:memory:/slurm/job_7\n0::/\n");
  kernel.limit("cg/memory/slurm/job_7/memory.limit_in_bytes", std::to_string(900 * mib));
  BOOST_TEST(kernel.left(1).bytes == 800 * mib);
  kernel.limit("cg/memory/slurm/job_7/memory.limit_in_bytes", "9223372036854771712");
  BOOST_TEST(kernel.left(1).bytes == 8192 * mib);
}

BOOST_AUTO_TEST_CASE(resource_limits_are_reduced_by_what_is_used,
                     *boost::unit_test::enable_if<!sanitized>()) {
  const Kernel kernel("0::/\n");
  rlimit before{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_DATA, &before) == 0);
  const rlimit data{.rlim_cur = 4050 * mib, .rlim_max = before.rlim_max};
  BOOST_REQUIRE(::setrlimit(RLIMIT_DATA, &data) == 0);
  BOOST_TEST(kernel.left(1).bytes < 3954 * mib, "libraries need some of it");
  BOOST_TEST(kernel.left(1).bytes > 2000 * mib);
  BOOST_TEST(kernel.left(1).source == "ulimit -d");
  BOOST_TEST(kernel.left(2).processes == 1, "a resource limit applies to one process");
  BOOST_REQUIRE(::setrlimit(RLIMIT_DATA, &before) == 0);
}

BOOST_AUTO_TEST_CASE(without_kernel_files_there_is_no_limit) {
  const TemporaryDirectory empty;
  BOOST_TEST(memory_left(1, empty.path(), empty.path()).empty());
}

BOOST_AUTO_TEST_CASE(this_machine_has_memory_left) {
  const auto left = memory_left(1);
  BOOST_REQUIRE(!left.empty());
  for (const MemoryLimit& limit : left) BOOST_TEST(limit.bytes > mib);
}

BOOST_AUTO_TEST_CASE(
    a_node_has_what_its_control_group_leaves_beside_processes_and_files_in_memory) {
  Kernel kernel("0::/slurm/job_7/step_0\n");
  kernel.limit("cg/slurm/job_7/memory.max", std::to_string(1000 * mib));
  BOOST_TEST(kernel.node_left().bytes == 1000 * mib);

  kernel.limit("cg/slurm/job_7/memory.stat",
               fmt::format("anon {}\nfile {}\nshmem {}\n", 200 * mib, 500 * mib, 100 * mib));

  BOOST_TEST(kernel.node_left().bytes == 700 * mib);
  BOOST_TEST(kernel.node_left().source == "the control group");
}

BOOST_AUTO_TEST_CASE(slurms_memory_limit_counts_in_a_job_only) {
  const Kernel kernel("0::/\n");

  BOOST_TEST(kernel.node_left({{"SLURM_MEM_PER_NODE", "1000"}}).source == "the node");
  const std::map<std::string, std::string> whole{{"SLURM_JOB_ID", "7"},
                                                 {"SLURM_MEM_PER_NODE", "1000"}};
  BOOST_TEST(kernel.node_left(whole).bytes == 900 * mib);
  BOOST_TEST(kernel.node_left(whole, 4).bytes == 600 * mib);
  BOOST_TEST(kernel.node_left(whole).source == "SLURM_MEM_PER_NODE");
  BOOST_TEST(
      kernel
          .node_left(
              {{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_CPU", "500"}, {"SLURM_CPUS_ON_NODE", "4"}})
          .bytes == 1900 * mib);
  // 0: all of the node's.
  BOOST_TEST(kernel.node_left({{"SLURM_JOB_ID", "7"}, {"SLURM_MEM_PER_NODE", "0"}}).source ==
             "the node");
}
