#include "lockstep/compute/trial_cache.hpp"

#include "cache_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <utility>

namespace lockstep {
namespace {

ConvolutionTimes times_of(const std::string& value) {
  return {.direct = std::strtod(value.c_str(), nullptr),
          .winograd = std::strtod(value.c_str() + value.find('\t'), nullptr)};
}

constexpr CacheFile::Format format{
    .header =
        "# processor, convolution, seconds of a direct run and of Winograd's; may be deleted\n",
    .columns = 2,
    .is_usable = [](const std::string& value) {
      const auto usable = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
      const ConvolutionTimes times = times_of(value);
      return usable(times.direct) && usable(times.winograd);
    }};

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

TrialCache::TrialCache(std::string path)
    : file_(std::make_unique<CacheFile>(std::move(path), format)) {}
TrialCache::~TrialCache() = default;

std::string TrialCache::on_this_processor(const std::string& key) {
  if (processor_.empty()) processor_ = cpu_name();
  return processor_ + '\t' + key;
}

std::optional<ConvolutionTimes> TrialCache::find(const std::string& key) {
  const auto value = file_->find(on_this_processor(key));
  return value ? std::optional(times_of(*value)) : std::nullopt;
}

void TrialCache::add(const std::string& key, const ConvolutionTimes& times) {
  file_->add(on_this_processor(key), fmt::format("{}\t{}", times.direct, times.winograd));
}

void TrialCache::save() {
  file_->save();
}

std::string trial_cache_path() {
  return cache_path("convolutions.tsv");
}

}  // namespace lockstep
