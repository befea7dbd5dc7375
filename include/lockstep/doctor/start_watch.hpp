#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::doctor {

/// Watches the start of MPI, which may hang, or end the process by itself. Until `started()`,
/// `report` is called with what happened, by a thread or at the process's exit, and the process
/// ends with status 1.
class StartWatch final {
 public:
  using Report = std::function<void(const std::string& what)>;
  StartWatch(std::chrono::duration<double> limit, Report report);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

  void started();

 private:
  struct Shared;
  /// At the process's exit; owns one reference to Shared.
  static void at_exit(int status, void* shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace lockstep::doctor
