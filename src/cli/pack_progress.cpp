#include "pack_progress.hpp"

#include "lockstep/run/progress.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::cli {

PackProgress::PackProgress() : bar_(wants_bar(Progress::automatic, terminal_facts())) {}

PackProgress::~PackProgress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void PackProgress::update(const PackedSoFar& packed) {
  const auto now = Clock::now();
  const std::int64_t tenth = packed.done * 10 / packed.share;
  const bool due = bar_ ? now - last_ >= std::chrono::milliseconds(100)
                        : tenth > tenth_ && now - last_ >= std::chrono::seconds(1);
  if (!due) return;
  last_ = now;
  tenth_ = tenth;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto to_pack = static_cast<double>(packed.all - packed.before);
  const double fraction = static_cast<double>(packed.done) / static_cast<double>(packed.share);
  const double done = to_pack * fraction;
  const auto all_done = packed.before + static_cast<std::int64_t>(done);
  const std::string text =
      fmt::format("{} of {} samples, {:.0f} samples/s, {} left", all_done, packed.all,
                  done / seconds, format_duration(seconds / fraction * (1 - fraction)));
  const std::int64_t percent = all_done * 100 / packed.all;
  if (!bar_) {
    fmt::print(stderr, "packing: {}%, {}\n", percent, text);
    return;
  }
  constexpr std::int64_t width = 24;
  const auto filled = static_cast<std::size_t>(all_done * width / packed.all);
  fmt::print(stderr, "\rpacking [{}{}] {:3}% {}\033[K", std::string(filled, '='),
             std::string(width - filled, ' '), percent, text);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace lockstep::cli
