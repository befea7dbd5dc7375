#include "lockstep/run/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace lockstep {
namespace {

constexpr int widest_bar = 30;
constexpr int narrowest_bar = 5;
constexpr const char* clear_line = "\r\x1b[K";

std::string head(const ProgressState& state) {
  return fmt::format("epoch {}/{}", state.epoch + 1, state.epochs);
}

double fraction(const ProgressState& state) {
  if (state.steps_per_epoch <= 0) return 0;
  return std::clamp(
      static_cast<double>(state.step_of_epoch) / static_cast<double>(state.steps_per_epoch), 0.0,
      1.0);
}

std::string tail(const ProgressState& state) {
  std::string text =
      fmt::format("{}% step {}/{} loss {:.4f} lr {:.4g} {:.0f} images/s",
                  static_cast<int>(100 * fraction(state)), state.step_of_epoch,
                  state.steps_per_epoch, state.loss, state.lr, state.images_per_second);
  if (state.seconds_left) text += " eta " + format_duration(*state.seconds_left);
  return text;
}

std::string bar(double done, int width) {
  const int filled = static_cast<int>(std::lround(done * width));
  std::string text(static_cast<std::size_t>(width), ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled > 0 && filled < width) text[static_cast<std::size_t>(filled - 1)] = '>';
  return fmt::format("[{}]", text);
}

}  // namespace

std::string format_line(const ProgressState& state) {
  return head(state) + " " + tail(state);
}

std::string format_bar(const ProgressState& state, int columns) {
  const std::string before = head(state);
  const std::string after = tail(state);
  const int room =
      columns - static_cast<int>(before.size() + after.size()) - 4;  // brackets, blanks
  std::string text = format_line(state);
  if (room >= narrowest_bar) {
    text = fmt::format("{} {} {}", before, bar(fraction(state), std::min(room, widest_bar)), after);
  }
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(columns, 0))));
  return text;
}

TerminalSize terminal_size(int descriptor) {
  TerminalSize size;
  winsize found{};
  if (::ioctl(descriptor, TIOCGWINSZ, &found) != 0) return size;
  if (found.ws_col != 0) size.columns = found.ws_col;
  if (found.ws_row != 0) size.rows = found.ws_row;
  return size;
}

TerminalFacts terminal_facts() {
  TerminalFacts facts{.is_terminal = ::isatty(STDERR_FILENO) == 1, .has_launcher = false};
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_ID", "PMI_RANK"}) {
    facts.has_launcher = facts.has_launcher || std::getenv(name) != nullptr;
  }
  return facts;
}

bool wants_bar(Progress progress, const TerminalFacts& facts) noexcept {
  if (progress == Progress::automatic) return facts.is_terminal && !facts.has_launcher;
  return progress == Progress::bar;
}

ProgressDisplay::ProgressDisplay(const Options& options) : options_(options) {}

ProgressDisplay::~ProgressDisplay() {
  clear();
}

void ProgressDisplay::update(ProgressState state) {
  const Clock::time_point now = Clock::now();
  if (last_step_ >= 0 && state.step > last_step_) {
    const double seconds = std::chrono::duration<double>(now - last_update_).count() /
                           static_cast<double>(state.step - last_step_);
    constexpr double weight = 0.05;  // of the newest step: averages over about 20 steps
    seconds_per_step_ =
        seconds_per_step_ == 0 ? seconds : (1 - weight) * seconds_per_step_ + weight * seconds;
  }
  last_step_ = state.step;
  last_update_ = now;
  if (!state.seconds_left && seconds_per_step_ > 0) {
    state.seconds_left = seconds_per_step_ * static_cast<double>(std::max<std::int64_t>(
                                                 0, state.total_steps - state.step));
  }
  const bool last = state.step == state.total_steps;
  if (!options_.bar) {
    const bool due = options_.log_every > 0 && state.step % options_.log_every == 0;
    if (due || last) write(format_line(state) + "\n");
    return;
  }
  shown_ = state;
  if (drawn_ && !last && now - last_draw_ < options_.redraw) return;
  last_draw_ = now;
  draw();
}

void ProgressDisplay::print(const std::string& line) {
  if (!drawn_) {
    write(line + "\n");
    return;
  }
  write(fmt::format("{}{}\n", clear_line, line));
  draw();
}

void ProgressDisplay::clear() {
  if (!drawn_) return;
  write(clear_line);
  drawn_ = false;
}

void ProgressDisplay::draw() {
  if (!shown_) return;
  // The last column stays empty: some terminals wrap when it is filled.
  const int columns = static_cast<int>(terminal_size(options_.descriptor).columns) - 1;
  write(fmt::format("\r{}\x1b[K", format_bar(*shown_, columns)));
  drawn_ = true;
}

void ProgressDisplay::write(const std::string& text) const {
  [[maybe_unused]] const ssize_t ignored = ::write(options_.descriptor, text.data(), text.size());
}

}  // namespace lockstep
