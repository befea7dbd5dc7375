#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// `metrics.jsonl`: one JSON object a line, each with `event` and `step`. Rank 0's alone.
class MetricsLog final {
 public:
  /// Cuts what is there to the lines of step `resumed_step` and before, a torn last line dropped;
  /// -1: a fresh run, all of it. Error(cannot_write).
  MetricsLog(const std::string& run_directory, std::int64_t resumed_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// One line, by one write(). Values that are not finite become null. False where the line could
  /// not be written: it is lost as a whole, and training goes on.
  bool write(const nlohmann::ordered_json& object);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct RankIdentity {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string host;
  std::string device;
  std::string cores;
};

/// `log/rank-00000.log`: this rank's own text, flushed line by line. It opens with the rank's
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
