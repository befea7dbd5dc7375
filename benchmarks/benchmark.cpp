#include "benchmark.hpp"

#include "lockstep/core/version.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

namespace lockstep::benchmark {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Config benchmarked_config() {
  Config config;
  config.model = "mini-resnet";
  config.image_size = 32;
  config.channels = 3;
  config.classes = 10;
  config.batch_size = 64;
  config.loader_threads = 1;
  return config;
}

LoaderOptions synthetic_loader_options(const Config& config, const InputFormat& format) {
  const auto channels = static_cast<std::size_t>(config.channels);
  return {.image = {.channels = config.channels,
                    .height = config.image_size,
                    .width = config.image_size},
          .format = format,
          .mean = std::vector<float>(channels, 0.5F),
          .std = std::vector<float>(channels, 0.25F),
          .batch_capacity = config.batch_size,
          .threads = static_cast<int>(config.loader_threads),
          .shuffle = false};
}

Sample summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double fraction) {
    const long index = std::lround(fraction * static_cast<double>(values.size() - 1));
    return values[static_cast<std::size_t>(index)];
  };
  return {.median = at(0.5), .p10 = at(0.1), .p90 = at(0.9), .largest = values.back()};
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Json machine_description(const BenchContext& context) {
  return {{"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(
                                                  std::chrono::system_clock::now())))},
          {"processor", processor_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"ranks", context.comm.size()},
          {"nodes", context.grid.nodes},
          {"threads", context.binding.threads},
          {"version", version()}};
}

std::string format_table(const BenchResult& result) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < result.columns.size(); ++i) {
    std::size_t width = result.columns[i].size();
    for (const auto& row : result.rows) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += '\n';
  };
  add(result.columns);
  for (const auto& row : result.rows) add(row);
  return text;
}

}  // namespace lockstep::benchmark
