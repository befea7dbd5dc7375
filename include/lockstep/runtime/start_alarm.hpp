#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace lockstep {

struct StartAlarmOptions {
  std::chrono::duration<double> notice = std::chrono::minutes(1);
  std::chrono::duration<double> limit = std::chrono::minutes(30);
  std::function<void()> tell = {};  ///< after `notice`
  std::function<void()> end = {};   ///< after `limit`
};

/// Watches the start of MPI, which waits for all processes that the launcher started, however long
/// they take: they may be of a shell, or on a node that hangs.
class StartAlarm final {
 public:
  explicit StartAlarm(StartAlarmOptions options);
  ~StartAlarm() = default;
  StartAlarm(const StartAlarm&) = delete;
  StartAlarm& operator=(const StartAlarm&) = delete;

 private:
  void watch(const std::stop_token& stop);

  StartAlarmOptions options_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  ///< last, so stopped first
};

}  // namespace lockstep
