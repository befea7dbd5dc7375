#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

namespace lockstep::gpu {

/// Which calls a stream's capture forbids to the thread that captures: for a device on the host,
/// all but those that queue work. CUDA refuses some of them and leaves others undefined.
class HostCapture final {
 public:
  void begin() {
    forbid("another capture");
    thread_ = std::this_thread::get_id();
  }
  void end() noexcept { thread_ = std::thread::id(); }
  void forbid(const char* call) const {
    if (is_here()) throw std::logic_error(message(call));
  }
  /// For calls that must not throw.
  void forbid_or_end(const char* call) const noexcept {
    if (!is_here()) return;
    std::fprintf(stderr, "%s\n", message(call).c_str());
    std::abort();
  }

 private:
  [[nodiscard]] bool is_here() const noexcept { return thread_ == std::this_thread::get_id(); }
  [[nodiscard]] static std::string message(const char* call) {
    return std::string(call) + " during a capture";
  }

  std::atomic<std::thread::id> thread_;
};

/// Objects of a device that exist. Outlives the device.
class LiveObjects final {
 public:
  void add(const void* object) {
    const std::lock_guard lock(mutex_);
    objects_.insert(object);
  }
  void remove(const void* object) {
    const std::lock_guard lock(mutex_);
    objects_.erase(object);
  }
  /// `what`: "an event".
  void require(const void* object, const char* what) const {
    const std::lock_guard lock(mutex_);
    if (!objects_.contains(object)) {
      throw std::logic_error(std::string(what) + " is used after its destruction");
    }
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const void*> objects_;
};

/// A member of an object that is in `all` while it exists.
class Liveness final {
 public:
  explicit Liveness(std::shared_ptr<LiveObjects> all) : all_(std::move(all)) { all_->add(this); }
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;
  ~Liveness() { all_->remove(this); }

 private:
  std::shared_ptr<LiveObjects> all_;
};

}  // namespace lockstep::gpu
