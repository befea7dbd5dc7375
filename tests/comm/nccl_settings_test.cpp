#include "lockstep/comm/nccl_settings.hpp"

#include <boost/test/unit_test.hpp>

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

using namespace lockstep;

namespace {

using Variables = std::map<std::string, std::string>;

VariableLookup lookup(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}
/// After forbid_nvls().
NcclSettings deterministic(Variables variables, int version = 22809) {
  variables.try_emplace("NCCL_NVLS_ENABLE", "0");
  return nccl_settings(version, true, lookup(std::move(variables)));
}
NcclSettings fastest(Variables variables, int version = 22809) {
  return nccl_settings(version, false, lookup(std::move(variables)));
}

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const char* text) const { std::ofstream(path / name) << text; }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("nccl_settings_test." + std::to_string(::getpid()));
};

}  // namespace

BOOST_AUTO_TEST_CASE(deterministic_runs_use_neither_nvls_nor_windows) {
  const NcclSettings settings = deterministic({});
  const NcclSettings unset = nccl_settings(22809, true, lookup({}));

  BOOST_TEST(!settings.windows);
  BOOST_TEST(settings.text == "NCCL 2.28.9, NVLS and windows off (deterministic)");
  BOOST_TEST(!unset.windows);
  BOOST_TEST(unset.text == "NCCL 2.28.9, windows off (deterministic)");
}

BOOST_AUTO_TEST_CASE(other_runs_use_what_nccl_chooses) {
  const NcclSettings settings = fastest({});

  BOOST_TEST(settings.windows);
  BOOST_TEST(settings.text == "NCCL 2.28.9");
}

BOOST_AUTO_TEST_CASE(the_users_choice_holds_and_is_said) {
  const NcclSettings nvls = deterministic({{"NCCL_NVLS_ENABLE", "1"}});
  const NcclSettings windows = deterministic({{"NCCL_WIN_ENABLE", "1"}});
  const NcclSettings network = deterministic({{"NCCL_COLLNET_ENABLE", "1"}});
  const NcclSettings none = fastest({{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_WIN_ENABLE", "0"}});

  BOOST_TEST(!nvls.windows);
  BOOST_TEST(nvls.text ==
             "NCCL 2.28.9, windows off (deterministic), NCCL_NVLS_ENABLE=1 (sums may differ "
             "between runs)");
  BOOST_TEST(windows.windows);
  BOOST_TEST(windows.text ==
             "NCCL 2.28.9, NVLS off (deterministic), NCCL_WIN_ENABLE=1 (sums may differ between "
             "runs)");
  BOOST_TEST(network.text ==
             "NCCL 2.28.9, NVLS and windows off (deterministic), NCCL_COLLNET_ENABLE=1 (sums may "
             "differ between runs)");
  BOOST_TEST(!none.windows);
  BOOST_TEST(none.text == "NCCL 2.28.9, NCCL_NVLS_ENABLE=0, NCCL_WIN_ENABLE=0");
}

BOOST_AUTO_TEST_CASE(variables_that_choose_how_sums_are_formed_are_said) {
  const Variables chosen{{"NCCL_ALGO", "Ring"},
                         {"NCCL_PROTO", "Simple"},
                         {"NCCL_DEBUG", "INFO"},
                         {"NCCL_MAX_NCHANNELS", ""}};  // NCCL takes an empty value as none

  BOOST_TEST(fastest(chosen).text == "NCCL 2.28.9, NCCL_ALGO=Ring, NCCL_PROTO=Simple");
  BOOST_TEST(fastest({{"NCCL_TUNER_CONFIG_FILE", "/scratch/node-1/tuner"}}).text ==
             "NCCL 2.28.9, NCCL_TUNER_CONFIG_FILE");
  BOOST_TEST(deterministic(chosen).text ==
             "NCCL 2.28.9, NVLS and windows off (deterministic), NCCL_ALGO=Ring, "
             "NCCL_PROTO=Simple");
}

BOOST_AUTO_TEST_CASE(versions_whose_windows_hang_do_without) {
  for (const int version : {22900, 22907, 23007, 23101}) {
    BOOST_TEST_CONTEXT(version) {
      BOOST_TEST(!fault_of_windows(version).empty());
      BOOST_TEST(!fastest({}, version).windows);
      BOOST_TEST(fastest({{"NCCL_WIN_ENABLE", "1"}}, version).windows);
      BOOST_TEST(!deterministic({}, version).windows);
    }
  }
  for (const int version : {22203, 22809, 23102, 23203}) {
    BOOST_TEST(fault_of_windows(version) == "");
  }
  BOOST_TEST(fastest({}, 22907).text ==
             "NCCL 2.29.7, windows off (gathers may hang in this version)");
  BOOST_TEST(fastest({{"NCCL_WIN_ENABLE", "1"}}, 22907).text ==
             "NCCL 2.29.7, NCCL_WIN_ENABLE=1 (gathers may hang in this version)");
}

BOOST_AUTO_TEST_CASE(files_of_variables_are_read_as_by_nccl) {
  const Folder folder;
  folder.write(".nccl.conf", "# NCCL_PROTO=LL\nNCCL_ALGO=Tree\nno assignment\nNCCL_ALGO=Ring\n");
  folder.write("nccl.conf", "NCCL_ALGO=PAT\nNCCL_NTHREADS=256\nNCCL_PROTO=LL128\n");
  folder.write("other", "NCCL_PROTO=Simple");
  const auto found = [&](const Variables& environment) {
    const VariableLookup variables =
        nccl_variables(lookup(environment), folder.path, folder.path / "nccl.conf");
    return variables("NCCL_ALGO").value_or("none") + " " +
           variables("NCCL_PROTO").value_or("none") + " " +
           variables("NCCL_NTHREADS").value_or("none");
  };

  BOOST_TEST(found({}) == "Tree LL128 256");
  BOOST_TEST(found({{"NCCL_ALGO", "CollnetDirect"}}) == "CollnetDirect LL128 256");
  BOOST_TEST(found({{"NCCL_CONF_FILE", folder.path / "other"}}) == "PAT Simple 256");
  BOOST_TEST(found({{"NCCL_CONF_FILE", folder.path / "absent"}}) == "PAT LL128 256");
}

BOOST_AUTO_TEST_CASE(nvls_is_forbidden_unless_the_user_has_set_it) {
  const auto after = [](const Variables& variables) {
    ::unsetenv("NCCL_NVLS_ENABLE");
    forbid_nvls(lookup(variables));
    return environment_variable("NCCL_NVLS_ENABLE").value_or("unset");
  };

  BOOST_TEST(after({}) == "0");
  BOOST_TEST(after({{"NCCL_NVLS_ENABLE", ""}}) == "0");
  BOOST_TEST(after({{"NCCL_NVLS_ENABLE", "2"}}) == "unset");
}
