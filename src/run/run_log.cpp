#include "lockstep/run/run_log.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/line_follower.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/run/append_file.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* run_directory_suggestion = "use another --run-dir";

AppendFile open_to_append(const FilePath& path) {
  AppendFile file(path, AppendFile::Create::if_absent);
  if (!file.valid()) AppendFile::cannot_write(path);
  return file;
}

/// The lines of a run up to a step; drops a torn line, which does not parse.
std::string lines_until(const FilePath& path, std::int64_t last_step) {
  std::string kept;
  LineFollower lines(path);
  static_cast<void>(lines.read([&](std::string_view line) {
    const std::optional<Json> object = parse_json(line);
    if (!object || !object->is_object()) return;
    const auto step = object->find("step");
    const bool later = step != object->end() && step->is_number() &&
                       step->get<double>() > static_cast<double>(last_step);
    if (!later) kept.append(line) += '\n';
  }));
  return kept;
}

AppendFile open_metrics(const std::string& run_directory, std::int64_t resumed_step) {
  const FilePath path = OpenDirectory(run_directory) / "metrics.jsonl";
  require_file_or_absent(path, run_directory_suggestion);
  struct stat status {};
  if (path.get_status(status) && status.st_size > 0) {
    const std::string kept = resumed_step < 0 ? "" : lines_until(path, resumed_step);
    if (kept.size() != static_cast<std::size_t>(status.st_size)) write_text_atomically(path, kept);
  }
  return open_to_append(path);
}

}  // namespace

MetricsLog::MetricsLog(const std::string& run_directory, std::int64_t resumed_step)
    : file_(open_metrics(run_directory, resumed_step)) {}

bool MetricsLog::write(const Json& object) {
  return file_.append(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// A full disk loses whole lines; it must neither stop training nor fill the terminal.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogSink(AppendFile file) : file_(std::move(file)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    static_cast<void>(file_.append({line.data(), line.size()}));
  }
  void flush_() override {}

  AppendFile file_;
};

struct RankLog::Impl {
  explicit Impl(AppendFile file) : logger("lockstep", std::make_shared<LogSink>(std::move(file))) {
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
    logger.flush_on(spdlog::level::trace);
  }
  spdlog::logger logger;
};

RankLog::RankLog(const std::string& run_directory, const RankIdentity& identity) {
  const char* const suggestion = "check --run-dir and its permissions";
  make_directories(run_directory, suggestion);  // another node's may not be seen here yet
  const OpenDirectory directory(run_directory);
  make_directories(directory / "log", suggestion);
  impl_ = std::make_unique<Impl>(
      open_to_append(directory / fmt::format("log/rank-{:05}.log", identity.rank)));
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
