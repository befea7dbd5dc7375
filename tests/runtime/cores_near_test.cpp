#define BOOST_TEST_MODULE cores_near
#include "lockstep/runtime/thread_binding.hpp"

#include <boost/test/unit_test.hpp>

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

using namespace lockstep;

namespace {

/// A directory with the structure of /sys/devices/system/node.
class Nodes {
 public:
  Nodes() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-nodes-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Nodes() { std::filesystem::remove_all(path_); }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;
  void add(int node, const std::string& cores) const {
    const auto directory = std::filesystem::path(path_) / ("node" + std::to_string(node));
    std::filesystem::create_directory(directory);
    std::ofstream(directory / "cpulist") << cores << '\n';
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<int> first(int count) {
  std::vector<int> cores(static_cast<std::size_t>(count));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_cores_of_a_node_are_those_in_its_cpulist) {
  const Nodes nodes;
  nodes.add(0, "0-1,6,8-9");
  nodes.add(1, "2-5,7");

  BOOST_TEST((cores_near(0, first(10), nodes.path()) == std::vector<int>{0, 1, 6, 8, 9}));
  BOOST_TEST((cores_near(1, first(10), nodes.path()) == std::vector<int>{2, 3, 4, 5, 7}));
  const std::vector<int> some{1, 4, 5, 9};
  BOOST_TEST((cores_near(1, some, nodes.path()) == std::vector<int>{4, 5}));
}

BOOST_AUTO_TEST_CASE(all_cores_are_near_if_the_node_has_no_usable_list) {
  const Nodes nodes;
  nodes.add(0, "");
  nodes.add(1, "20-30");

  for (const int node : {-1, 0, 1, 7}) {
    BOOST_TEST((cores_near(node, first(8), nodes.path()) == first(8)));
  }
}
