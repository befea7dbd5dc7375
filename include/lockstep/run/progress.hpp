#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/core/units.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Training progress; epochs count from 0, steps from 1.
struct ProgressState {
  std::int64_t epoch = 0;
  std::int64_t epochs = 0;
  std::int64_t step_of_epoch = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double loss = 0;
  double lr = 0;
  double images_per_second = 0;
  std::optional<double> seconds_left;  ///< nullopt: not known yet
};

/// "epoch 2/5 [=====>    ] 48% step 123/469 loss 0.4321 lr 0.0812 1234 images/s eta 0:42", in at
/// most `columns` columns: first the bar shrinks, then the end is cut.
[[nodiscard]] std::string format_bar(const ProgressState& state, int columns);
/// The same without the bar.
[[nodiscard]] std::string format_line(const ProgressState& state);

struct TerminalSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

/// Of the terminal behind `descriptor`; the defaults if it is none or does not tell.
[[nodiscard]] TerminalSize terminal_size(int descriptor);

struct TerminalFacts {
  bool is_terminal = false;
  bool has_launcher = false;  ///< mpirun or srun relays output line by line
};
/// Facts about standard error.
[[nodiscard]] TerminalFacts terminal_facts();
[[nodiscard]] bool wants_bar(Progress progress, const TerminalFacts& facts) noexcept;

/// Rank 0's terminal: a live bar, or a line every `log_every` steps. All output goes to a
/// descriptor that the caller owns (standard error). Write errors are ignored: a closed terminal
/// must not stop a run.
class ProgressDisplay final {
 public:
  struct Options {
    bool bar = false;
    std::int64_t log_every = 50;  ///< steps between plain lines
    std::chrono::milliseconds redraw = std::chrono::milliseconds(100);
    int descriptor = 2;
  };
  explicit ProgressDisplay(const Options& options);
  ~ProgressDisplay();  ///< clears the bar
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// Shows a step, at most once per `redraw`; estimates seconds_left if it is nullopt.
  void update(ProgressState state);
  /// Prints a separate line above the bar.
  void print(const std::string& line);
  /// Clears the bar before other output; the next update redraws it.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  void write(const std::string& text) const;

  Options options_;
  std::optional<ProgressState> shown_;
  bool drawn_ = false;
  Clock::time_point last_draw_{};
  Clock::time_point last_update_{};
  std::int64_t last_step_ = -1;
  double seconds_per_step_ = 0;  ///< smoothed; 0: not known yet
};

}  // namespace lockstep
