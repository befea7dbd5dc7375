#include "lockstep/run/run_log.hpp"

#include "append_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* run_directory_suggestion = "use another --run-dir";

/// The lines of a run up to a step; drops a torn line, which does not parse.
std::string lines_until(const std::string& path, std::int64_t last_step) {
  std::string kept;
  std::ifstream file = open_input_stream(path);
  for (std::string line; std::getline(file, line);) {
    const Json object = Json::parse(line, nullptr, false);
    if (file.eof() || !object.is_object()) continue;
    const auto step = object.find("step");
    const bool later = step != object.end() && step->is_number() &&
                       step->get<double>() > static_cast<double>(last_step);
    if (!later) kept += line + "\n";
  }
  return kept;
}

}  // namespace

struct MetricsLog::Impl {
  AppendFile file;
};

MetricsLog::MetricsLog(const std::string& run_directory, std::int64_t resumed_step) {
  const std::string path = run_directory + "/metrics.jsonl";
  std::error_code ignored;
  require_file_or_absent(path, run_directory_suggestion);
  const auto bytes = std::filesystem::file_size(path, ignored);
  if (!ignored && bytes > 0) {
    const std::string kept = resumed_step < 0 ? "" : lines_until(path, resumed_step);
    if (kept.size() != bytes) write_text_atomically(path, kept);
  }
  impl_.reset(new Impl{AppendFile(path, AppendFile::Create::if_absent)});
  if (!impl_->file.valid()) {
    fail(ExitStatus::cannot_write, "cannot write {} ({}); check --run-dir and its permissions",
         path, std::strerror(errno));
  }
}

MetricsLog::~MetricsLog() = default;

bool MetricsLog::write(const Json& object) {
  return impl_->file.append(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

struct RankLog::Impl {
  explicit Impl(const std::string& path)
      : logger("lockstep", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)) {
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
    logger.flush_on(spdlog::level::trace);
    // A full disk loses lines; it must neither stop training nor fill the terminal.
    logger.set_error_handler([](const std::string&) {});
  }
  spdlog::logger logger;
};

RankLog::RankLog(const std::string& run_directory, const RankIdentity& identity) {
  const std::string path = fmt::format("{}/log/rank-{:05}.log", run_directory, identity.rank);
  require_file_or_absent(path, run_directory_suggestion);
  try {
    impl_ = std::make_unique<Impl>(path);
  } catch (const std::exception& error) {  // spdlog's and the file system's
    fail(ExitStatus::cannot_write, "cannot write {} ({}); check --run-dir and its permissions",
         path, error.what());
  }
  info(fmt::format("rank {} of {}, local rank {}, host {}, device {}, cores {}", identity.rank,
                   identity.world_size, identity.local_rank, identity.host, identity.device,
                   identity.cores));
}

RankLog::~RankLog() = default;

void RankLog::info(const std::string& line) {
  impl_->logger.log(spdlog::level::info, escape_line(line));
}
void RankLog::warn(const std::string& line) {
  impl_->logger.log(spdlog::level::warn, escape_line(line));
}

}  // namespace lockstep
