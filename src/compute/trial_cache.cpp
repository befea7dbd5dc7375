#include "lockstep/compute/trial_cache.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view header =
    "# processor, convolution, seconds of a direct run and of Winograd's; may be deleted\n";

/// Lines that are not of this form are passed over.
std::map<std::string, ConvolutionTimes> read(const std::string& path) {
  std::map<std::string, ConvolutionTimes> entries;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t second = line.rfind('\t');
    const std::size_t first = second == std::string::npos || second == 0
                                  ? std::string::npos
                                  : line.rfind('\t', second - 1);
    if (first == std::string::npos) continue;
    const ConvolutionTimes times{.direct = std::strtod(line.c_str() + first, nullptr),
                                 .winograd = std::strtod(line.c_str() + second, nullptr)};
    const auto usable = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
    if (usable(times.direct) && usable(times.winograd)) entries[line.substr(0, first)] = times;
  }
  return entries;
}

/// "AMD EPYC 9654, family 25 model 17 stepping 1"
std::string cpu_name() {
  std::map<std::string, std::string> facts;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    facts.emplace(name, line.substr(colon + 2));
  }
  return fmt::format("{}, family {} model {} stepping {}", facts["model name"], facts["cpu family"],
                     facts["model"], facts["stepping"]);
}

}  // namespace

TrialCache::TrialCache(std::string path) : path_(std::move(path)) {}

TrialCache::Content& TrialCache::content() {
  if (!content_) content_ = {.processor = cpu_name(), .entries = read(path_)};
  return *content_;
}

std::optional<ConvolutionTimes> TrialCache::find(const std::string& key) {
  const Content& known = content();
  const auto found = known.entries.find(known.processor + '\t' + key);
  return found == known.entries.end() ? std::nullopt : std::optional(found->second);
}

void TrialCache::add(const std::string& key, const ConvolutionTimes& times) {
  Content& known = content();
  known.entries[known.processor + '\t' + key] = times;
  changed_ = true;
}

void TrialCache::save() {
  if (!changed_ || path_.empty()) return;
  changed_ = false;
  auto merged = content().entries;
  merged.merge(read(path_));  // another job may have added meanwhile
  std::string text(header);
  for (const auto& [key, times] : merged) {
    text += fmt::format("{}\t{}\t{}\n", key, times.direct, times.winograd);
  }
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  try {
    write_text_atomically(path_, text);
  } catch (const Error&) {
    return;  // no place to keep it: the next start measures
  }
}

std::string trial_cache_path() {
  // The standard for these directories passes over relative ones.
  const auto directory = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : "";
  };
  std::filesystem::path base = directory("XDG_CACHE_HOME");
  if (base.empty() && !directory("HOME").empty()) base = directory("HOME") / ".cache";
  return base.empty() ? std::string() : (base / "lockstep" / "convolutions.tsv").string();
}

}  // namespace lockstep
