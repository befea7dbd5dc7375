#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::watch {

/// Writes lines to standard error and to a log on a separate thread, so that a hanging file system
/// does not block the watchdog.
class AsyncLogger final {
 public:
  using Log = std::function<void(const std::string&)>;

  /// `cores`: cores for its thread; empty: any.
  explicit AsyncLogger(std::vector<int> cores);

  /// Sets the destination of log(); empty: none.
  void log_to(Log log);
  void log(std::string line);
  void print(std::string line);  ///< as an error
  void warn(std::string line);
  /// Blocks until everything is written, for at most `longest`.
  void wait(std::chrono::milliseconds longest);

 private:
  enum class Kind { log, error, warning };
  struct Line {
    Kind kind;
    std::string text;
  };
  void add(Line line);
  static void write(const Line& line, const Log& log);
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Line> lines_;  ///< the first is being written; guarded by mutex_
  Log log_;                 ///< guarded by mutex_
  std::jthread thread_;     ///< last: writes all lines and stops before the members above end
};

}  // namespace lockstep::watch
