#include "lockstep/comm/nccl_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr const char* nvls_variable = "NCCL_NVLS_ENABLE";
constexpr const char* window_variable = "NCCL_WIN_ENABLE";

/// Those that choose how sums are formed: by which algorithm, in which pieces, on which network.
/// Unequal ones make NCCL hang or fail.
constexpr std::array deciding_variables{
    nvls_variable,   window_variable,      "NCCL_COLLNET_ENABLE", "NCCL_ALGO",
    "NCCL_PROTO",    "NCCL_PAT_ENABLE",    "NCCL_CTA_POLICY",     "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",  "NCCL_NTHREADS",
    "NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE",   "NCCL_LL128_BUFFSIZE"};
/// They name files, whose paths may differ between nodes.
constexpr std::array deciding_files{"NCCL_GRAPH_FILE", "NCCL_TUNER_PLUGIN",
                                    "NCCL_TUNER_CONFIG_FILE"};

/// Versions from `first`, before `fixed`.
struct Fault {
  int first;
  int fixed;
  const char* text;
};
/// 2.29 gathers large windows by copy engines on Blackwell, and two ranks may wait forever for a
/// flag that one wrote before the other's memory was bound (NVIDIA/nccl 2241, 2290). It also fails
/// where 2.28 did without when the 128 multicast groups of the switches are used up (2077).
constexpr std::array faults_of_windows{
    Fault{.first = 22900, .fixed = 23102, .text = "gathers may hang in this version"}};

/// NCCL's rules: a line is NAME=VALUE, or a comment if it begins with #; the first value counts.
void read_variables(const std::filesystem::path& file,
                    std::map<std::string, std::string, std::less<>>& values) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t end = line.find('=');
    if (line.starts_with('#') || end == std::string::npos) continue;
    values.try_emplace(line.substr(0, end), line.substr(end + 1));
  }
}

/// NCCL takes an empty value as none.
std::optional<std::string> value_of(const VariableLookup& variables, const char* name) {
  std::optional<std::string> value = variables(name);
  return value && value->empty() ? std::nullopt : value;
}
/// Numbers as NCCL reads them.
std::optional<bool> switch_of(const VariableLookup& variables, const char* name) {
  const std::optional<std::string> value = value_of(variables, name);
  if (!value) return std::nullopt;
  return std::strtoll(value->c_str(), nullptr, 0) != 0;
}

}  // namespace

VariableLookup nccl_variables(VariableLookup environment, const std::filesystem::path& home,
                              const std::filesystem::path& system) {
  std::map<std::string, std::string, std::less<>> values;
  read_variables(
      value_of(environment, "NCCL_CONF_FILE").value_or(home.empty() ? "" : home / ".nccl.conf"),
      values);
  read_variables(system, values);
  return [environment = std::move(environment),
          values = std::move(values)](const char* name) -> std::optional<std::string> {
    if (std::optional<std::string> value = environment(name)) return value;
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

VariableLookup nccl_variables() {
  const passwd* const user = ::getpwuid(::getuid());
  return nccl_variables(environment_variable, user == nullptr ? "" : user->pw_dir,
                        "/etc/nccl.conf");
}

void forbid_nvls(const VariableLookup& variables) {
  if (!value_of(variables, nvls_variable)) ::setenv(nvls_variable, "0", 1);
}

std::string fault_of_windows(int version) {
  for (const Fault& fault : faults_of_windows) {
    if (version >= fault.first && version < fault.fixed) return fault.text;
  }
  return "";
}

NcclSettings nccl_settings(int version, bool deterministic, const VariableLookup& variables) {
  const std::optional<bool> nvls = switch_of(variables, nvls_variable);
  const std::optional<bool> windows = switch_of(variables, window_variable);
  const std::string fault = fault_of_windows(version);
  NcclSettings settings{.windows = windows.value_or(!deterministic && fault.empty())};
  std::vector<std::string> off;
  if (deterministic && nvls == false) off.emplace_back("NVLS");
  if (!settings.windows && (deterministic || !windows)) off.emplace_back("windows");
  settings.text = fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (!off.empty()) {
    settings.text += fmt::format(", {} off ({})", fmt::join(off, " and "),
                                 deterministic ? "deterministic" : fault.c_str());
  }
  for (const char* const name : deciding_variables) {
    const std::optional<std::string> value = value_of(variables, name);
    const bool is_switch = name == nvls_variable || name == window_variable;
    if (!value || (deterministic && is_switch && !*switch_of(variables, name))) continue;
    settings.text += fmt::format(", {}={}", name, *value);
    const bool varies = is_switch || std::string_view(name) == "NCCL_COLLNET_ENABLE";
    if (deterministic && varies && *switch_of(variables, name)) {
      settings.text += " (sums may differ between runs)";
    }
    if (name == window_variable && settings.windows && !fault.empty()) {
      settings.text += fmt::format(" ({})", fault);
    }
  }
  for (const char* const name : deciding_files) {
    if (value_of(variables, name)) settings.text += fmt::format(", {}", name);
  }
  return settings;
}

}  // namespace lockstep
