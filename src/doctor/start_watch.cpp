#include "lockstep/doctor/start_watch.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace lockstep::doctor {

struct StartWatch::Shared {
  std::chrono::duration<double> limit;
  Report report;
  std::mutex mutex;
  std::condition_variable changed;
  bool started = false;

  /// Says it once.
  void end(const std::string& what) {
    Report once;
    {
      const std::lock_guard lock(mutex);
      if (started) return;
      started = true;
      once = std::move(report);
    }
    once(what);
    std::fflush(nullptr);
  }
};

StartWatch::StartWatch(std::chrono::duration<double> limit, Report report)
    : shared_(std::make_shared<Shared>()) {
  shared_->limit = limit;
  shared_->report = std::move(report);
  ::on_exit(at_exit, new std::shared_ptr<Shared>(shared_));
  thread_ = std::thread([shared = shared_] {
    // Signals are the other threads' business.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(shared->mutex);
    if (shared->changed.wait_for(lock, shared->limit, [&] { return shared->started; })) return;
    lock.unlock();
    shared->end(fmt::format("nothing within the {:g} s of --timeout", shared->limit.count()));
    std::_Exit(EXIT_FAILURE);
  });
}

StartWatch::~StartWatch() {
  started();
  thread_.join();
}

void StartWatch::started() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->started = true;
  }
  shared_->changed.notify_all();
}

void StartWatch::at_exit(int /*status*/, void* shared) {
  const std::unique_ptr<std::shared_ptr<Shared>> mine(
      static_cast<std::shared_ptr<Shared>*>(shared));
  (*mine)->end("the MPI library ended the process; what it said stands above");
}

}  // namespace lockstep::doctor
