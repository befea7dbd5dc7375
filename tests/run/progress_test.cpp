#include <boost/test/unit_test.hpp>

#include "lockstep/run/progress.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

ProgressState example() {
  return {.epoch = 1,
          .epochs = 5,
          .step_of_epoch = 225,
          .steps_per_epoch = 469,
          .step = 694,
          .total_steps = 2345,
          .loss = 0.43211,
          .lr = 0.08123,
          .images_per_second = 1234.4,
          .seconds_left = 41.3};
}

/// A terminal of `columns` columns that keeps its output.
class Output final {
 public:
  explicit Output(int columns) {
    read_end_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (read_end_ < 0 || ::grantpt(read_end_) != 0 || ::unlockpt(read_end_) != 0)
      throw std::runtime_error("no terminal");
    write_end_ = ::open(::ptsname(read_end_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24,
                       .ws_col = static_cast<unsigned short>(columns),
                       .ws_xpixel = 0,
                       .ws_ypixel = 0};
    ::ioctl(write_end_, TIOCSWINSZ, &size);
    ::fcntl(read_end_, F_SETFL, O_NONBLOCK);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    ::close(read_end_);
    ::close(write_end_);
  }
  [[nodiscard]] int descriptor() const noexcept { return write_end_; }
  [[nodiscard]] std::string text() const {
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = ::read(read_end_, bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

std::size_t count_of(const std::string& text, char wanted) {
  return static_cast<std::size_t>(std::ranges::count(text, wanted));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_line_contains_all_values) {
  BOOST_TEST(format_line(example()) ==
             "epoch 2/5 47% step 225/469 loss 0.4321 lr 0.08123 1234 images/s eta 0:42");
  ProgressState unknown = example();
  unknown.seconds_left.reset();
  BOOST_TEST(format_line(unknown) ==
             "epoch 2/5 47% step 225/469 loss 0.4321 lr 0.08123 1234 images/s");
}

BOOST_AUTO_TEST_CASE(the_bar_fits_the_width) {
  BOOST_TEST(format_bar(example(), 200) ==
             "epoch 2/5 [=============>                ] 47% step 225/469 loss 0.4321 lr 0.08123 "
             "1234 images/s eta 0:42");
  BOOST_TEST(
      format_bar(example(), 85) ==
      "epoch 2/5 [====>     ] 47% step 225/469 loss 0.4321 lr 0.08123 1234 images/s eta 0:42");
  for (int columns = 0; columns < 150; ++columns) {
    BOOST_TEST(format_bar(example(), columns).size() <= static_cast<std::size_t>(columns));
  }
}

BOOST_AUTO_TEST_CASE(inconsistent_counts_do_not_break_the_bar) {
  ProgressState state = example();
  state.steps_per_epoch = 0;
  BOOST_TEST(format_bar(state, 100).find("[ ") != std::string::npos);
  state.steps_per_epoch = 10;  // fewer than the completed steps
  BOOST_TEST(format_bar(state, 100).find("100%") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(durations_are_formatted_as_a_clock) {
  BOOST_TEST(format_duration(0) == "0:00");
  BOOST_TEST(format_duration(59.2) == "1:00");
  BOOST_TEST(format_duration(3 * 3600 + 7 * 60) == "3:07:00");
  BOOST_TEST(format_duration(-5) == "0:00");
}

BOOST_AUTO_TEST_CASE(a_bar_needs_a_terminal_without_a_launcher_unless_requested) {
  const TerminalFacts terminal{.is_terminal = true, .has_launcher = false};
  const TerminalFacts launched{.is_terminal = true, .has_launcher = true};
  const TerminalFacts file{.is_terminal = false, .has_launcher = false};

  BOOST_TEST(wants_bar(Progress::automatic, terminal));
  BOOST_TEST(!wants_bar(Progress::automatic, launched));
  BOOST_TEST(!wants_bar(Progress::automatic, file));
  BOOST_TEST(wants_bar(Progress::bar, launched));
  BOOST_TEST(!wants_bar(Progress::plain, terminal));
}

BOOST_AUTO_TEST_CASE(launchers_are_detected_by_their_environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_ID", "PMI_RANK"})
    ::unsetenv(name);
  BOOST_TEST(!terminal_facts().has_launcher);
  ::setenv("PMIX_RANK", "0", 1);
  BOOST_TEST(terminal_facts().has_launcher);
  ::unsetenv("PMIX_RANK");
}

BOOST_AUTO_TEST_CASE(plain_lines_are_printed_at_an_interval_and_at_the_end) {
  const Output output(80);
  ProgressDisplay display(
      {.bar = false, .log_every = 10, .redraw = 0ms, .descriptor = output.descriptor()});

  ProgressState state = example();
  state.total_steps = 25;
  for (state.step = 1; state.step <= 25; ++state.step) display.update(state);

  const std::string text = output.text();
  BOOST_TEST(count_of(text, '\n') == 3u);
  BOOST_TEST(count_of(text, '\x1b') == 0u);
}

BOOST_AUTO_TEST_CASE(the_bar_is_redrawn_in_place_at_an_interval) {
  const Output output(60);
  std::int64_t most_draws = 0;
  {
    ProgressDisplay display(
        {.bar = true, .log_every = 1, .redraw = 50ms, .descriptor = output.descriptor()});
    ProgressState state = example();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) {
      ++state.step;
      display.update(state);
    }
    std::this_thread::sleep_for(60ms);
    ++state.step;
    display.update(state);
    most_draws = 3 + (std::chrono::steady_clock::now() - begin) / 50ms;
  }

  const std::string text = output.text();
  const std::size_t draws =
      count_of(text, 'e') == 0 ? 0 : count_of(text, '/') / 2;  // "2/5" and "225/469"
  BOOST_TEST(count_of(text, '\n') == 0u);
  BOOST_TEST(draws >= 2u);
  BOOST_TEST(draws <= static_cast<std::size_t>(most_draws));
  BOOST_TEST(text.ends_with("\r\x1b[K"));  // cleared at the end
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\r', begin), text.size());
    BOOST_TEST(end - begin <= 59u + 3u);  // 60 columns less one, and "\x1b[K"
    begin = end + 1;
  }
}

BOOST_AUTO_TEST_CASE(a_line_is_printed_above_the_bar) {
  const Output output(80);
  ProgressDisplay display(
      {.bar = true, .log_every = 1, .redraw = 0ms, .descriptor = output.descriptor()});
  display.update(example());
  static_cast<void>(output.text());

  display.print("checkpoint written");

  const std::string text = output.text();
  BOOST_TEST(text.starts_with("\r\x1b[Kcheckpoint written\r\n\repoch 2/5"));
}

BOOST_AUTO_TEST_CASE(the_time_left_is_estimated_from_past_steps) {
  const Output output(200);
  ProgressDisplay display(
      {.bar = true, .log_every = 1, .redraw = 0ms, .descriptor = output.descriptor()});
  ProgressState state = example();
  state.seconds_left.reset();
  state.step = 1;
  state.total_steps = 102;

  const auto begin = std::chrono::steady_clock::now();
  display.update(state);
  const std::string first = output.text();
  std::this_thread::sleep_for(100ms);
  state.step = 2;
  display.update(state);
  const auto took = std::chrono::steady_clock::now() - begin;

  BOOST_TEST(first.find("eta") == std::string::npos);
  const std::string second = output.text();
  // 100 more steps of 0.1 s, or as long as this machine took for one.
  int minutes = -1;
  int seconds = -1;
  const std::size_t eta = second.find("eta ");
  BOOST_REQUIRE(eta != std::string::npos);
  BOOST_REQUIRE(std::sscanf(second.c_str() + eta, "eta %d:%d", &minutes, &seconds) == 2);
  BOOST_TEST(60 * minutes + seconds >= 10);
  BOOST_TEST(60 * minutes + seconds <= 100 * took / 1s + 1, second);
}
