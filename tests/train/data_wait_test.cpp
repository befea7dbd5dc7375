#include "data_wait.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/signals.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

class StuckLoader final : public Loader {
 public:
  std::optional<LoadedBatch> next(FunctionRef<void()> /*meanwhile*/) override { return {}; }
  [[nodiscard]] std::int64_t samples_read() const noexcept override { return read; }
  [[nodiscard]] std::string slowest_read() const override { return "data/train.h5: sample 3"; }

  std::int64_t read = 0;
};

constexpr DataWait::Limits limits{.warning = 20ms, .after_signal = 20ms};

void check_for(DataWait& wait, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    wait.check();
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_wait_without_progress_is_a_warning_with_the_file_and_then_ends_on_a_signal) {
  const SignalFlag flag;
  std::vector<std::string> warnings;
  const DataWait::Warn warn = [&](const std::string& text) { warnings.push_back(text); };
  StuckLoader loader;
  DataWait wait(loader, warn, limits);
  while (warnings.size() < 2) check_for(wait, 1ms);
  for (const std::string& text : warnings) {
    BOOST_TEST(text.find("data/train.h5: sample 3 has been read for") != std::string::npos, text);
  }

  std::raise(SIGUSR1);

  BOOST_CHECK_EXCEPTION(check_for(wait, 10s), Error, [](const Error& error) {
    return error.status() == ExitStatus::stopped &&
           std::string(error.what()).find("sample 3") != std::string::npos;
  });
  // A loader that goes on is not given up.
  for (int i = 0; i < 50; ++i) {
    ++loader.read;
    BOOST_CHECK_NO_THROW(wait.check());
    std::this_thread::sleep_for(1ms);
  }
}
