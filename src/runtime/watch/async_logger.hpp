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

/// Writes lines to the standard error and to a log on a thread of its own: a file system that hangs
/// must not keep the watchdog from its work.
class AsyncLogger final {
 public:
  using Log = std::function<void(const std::string&)>;

  /// `cores`: where its thread may run; empty: anywhere.
  explicit AsyncLogger(std::vector<int> cores);

  /// Where lines of the log go from now on; empty: nowhere.
  void log_to(Log log);
  void log(std::string line);
  void print(std::string line);  ///< as an error
  void warn(std::string line);
  /// Until everything is written, but not for longer than this.
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
  std::deque<Line> lines_;  ///< the first one is being written; guarded by mutex_
  Log log_;                 ///< guarded by mutex_
  std::jthread thread_;     ///< last: it stops, with all written, before anything above goes
};

/// Signals are the training thread's, not those of the watchdog's threads.
void step_aside(const std::vector<int>& cores);

}  // namespace lockstep::watch
