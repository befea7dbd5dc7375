#include "data_wait.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/signals.hpp"

namespace lockstep {
namespace {

std::string text_of(const std::string& sample, StallAlarm::Clock::duration waited) {
  return fmt::format("{} has been read for {:.0f} s without an end (its file system may hang)",
                     sample.empty() ? "a sample" : sample,
                     std::chrono::duration<double>(waited).count());
}

}  // namespace

void DataWait::check() {
  const auto now = StallAlarm::Clock::now();
  if (const std::int64_t read = loader_.samples_read(); read != read_) {
    read_ = read;
    since_ = now;
  }
  if (SignalFlag::received() != 0 && now - since_ > limits_.after_signal) {
    fail(ExitStatus::stopped,
         "stopped on request while this rank waits for data: {}; check the mount",
         text_of(loader_.slowest_read(), now - since_));
  }
  const auto waited = alarm_.stalled(read_, now);
  if (waited && warn_) {
    warn_(fmt::format("this rank waits for data: {}; check the mount",
                      text_of(loader_.slowest_read(), *waited)));
  }
}

}  // namespace lockstep
