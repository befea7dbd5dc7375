#include "pack_progress.hpp"

#include "lockstep/run/progress.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::cli {

PackProgress::PackProgress() : bar_(wants_bar(Progress::automatic, terminal_facts())) {}

PackProgress::~PackProgress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void PackProgress::update(std::int64_t done, std::int64_t total) {
  const auto now = Clock::now();
  const std::int64_t tenth = done * 10 / total;
  const bool due = bar_ ? now - last_ >= std::chrono::milliseconds(100)
                        : tenth > tenth_ && now - last_ >= std::chrono::seconds(1);
  if (!due) return;
  last_ = now;
  tenth_ = tenth;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
  const std::int64_t percent = done * 100 / total;
  if (!bar_) {
    fmt::print(stderr, "packing: {}% ({} of {} samples), {} left\n", percent, done, total,
               format_duration(left));
    return;
  }
  constexpr std::int64_t width = 24;
  const auto filled = static_cast<std::size_t>(done * width / total);
  fmt::print(stderr, "\rpacking [{}{}] {:3}% {} of {} samples, {} left\033[K",
             std::string(filled, '='), std::string(width - filled, ' '), percent, done, total,
             format_duration(left));
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace lockstep::cli
