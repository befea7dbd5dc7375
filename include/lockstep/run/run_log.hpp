#pragma once

#include "lockstep/run/append_file.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// `metrics.jsonl`: one JSON object per line, each with `event` and `step`. Rank 0 only.
class MetricsLog final {
 public:
  /// Truncates an existing file to the lines up to step `resumed_step`, without a torn last line;
  /// -1: a fresh run, empties the file. Error(cannot_write).
  MetricsLog(const std::string& run_directory, std::int64_t resumed_step);

  /// Appends one line with one write(). Non-finite values become null. False if the line could not
  /// be written: it is dropped whole, and training continues.
  bool write(const nlohmann::ordered_json& object);

 private:
  AppendFile file_;
};

struct RankIdentity {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string host;
  std::string device;
  std::string cores;
};

/// `log/rank-00000.log`: this rank's messages, flushed line by line. The log begins with the rank's
/// identity.
class RankLog final {
 public:
  /// Appends; creates `log/`. Error(cannot_write).
  RankLog(const std::string& run_directory, const RankIdentity& identity);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  void info(const std::string& line);
  void warn(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
