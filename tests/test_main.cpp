// main() of the test programs that do not define their own; each has its program's name as the name
// of its suite.
#include <boost/test/unit_test.hpp>

#include <filesystem>

namespace {

bool name_suite() {
  auto& suite = boost::unit_test::framework::master_test_suite();
  suite.p_name.value = std::filesystem::path(suite.argv[0]).filename().string();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  return boost::unit_test::unit_test_main(name_suite, argc, argv);
}
