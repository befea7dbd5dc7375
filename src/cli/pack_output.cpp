#include "pack_output.hpp"

#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/run/progress.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <vector>

namespace lockstep::cli {
namespace {

Json to_json(const std::map<std::string, EntryFates::LeftOut>& left_out) {
  Json object = Json::object();
  for (const auto& [reason, of] : left_out) {
    object[reason] = {{"entries", of.entries}, {"first", of.first}};
  }
  return object;
}

/// Each entry of the input is counted in one of these lines.
void print_entries(const PackResult& result) {
  print_out("  input  {:>9} entries\n", entries_of(result));
  print_out("  train  {:>9} samples in {} shard{}\n", result.train_samples, result.train_shards,
            result.train_shards == 1 ? "" : "s");
  if (result.val_samples > 0) {
    print_out("  val    {:>9} samples in {} shard{}\n", result.val_samples, result.val_shards,
              result.val_shards == 1 ? "" : "s");
  } else {
    print_out("  val         none{}\n",
              result.left_out.empty() ? " (the source has no test part)" : "");
  }
  if (result.skipped > 0) print_out("  other  {:>9} unreadable\n", result.skipped);
  for (const auto& [reason, of] : result.left_out) {
    print_out("  other  {:>9} {}, such as {}\n", of.entries, reason, of.first.front());
  }
  for (const std::string& note : result.notes) print_out("  note: {}\n", note);
}

}  // namespace

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

void print_packed(const PackResult& result, const PackedTo& to) {
  if (to.json) {
    const Json object{
        {"samples", result.train_samples + result.val_samples},
        {"train_samples", result.train_samples},
        {"val_samples", result.val_samples},
        {"skipped", result.skipped},
        {"entries", entries_of(result)},
        {"left_out", to_json(result.left_out)},
        {"unused", result.unused},
        {"notes", result.notes},
        {"re_encoded", result.re_encoded},
        {"resized", result.resized},
        {"shards", result.train_shards + result.val_shards},
        {"earlier_shards", result.earlier_shards},
        {"classes", result.classes},
        {"mean", result.mean},
        {"std", result.std},
        {"bytes", result.bytes},
        {"seconds", to.seconds},
    };
    print_json(object);
    return;
  }
  print_out("{}: {} classes, {:.1f} MiB, packed in {:.1f} s\n", to.output, result.classes,
            static_cast<double>(result.bytes) / 0x1p20, to.seconds);
  print_entries(result);
  print_out("  mean   {:.4f}\n  std    {:.4f}\n", fmt::join(result.mean, " "),
            fmt::join(result.std, " "));
  if (result.earlier_shards > 0) {
    print_out("  {} shard{} packed by an earlier run\n", result.earlier_shards,
              result.earlier_shards == 1 ? " was" : "s were");
  }
  if (result.resized > 0) {
    print_out("  {} image{} resized to a short side of {}\n", result.resized,
              result.resized == 1 ? " was" : "s were", to.short_side);
  }
  if (result.re_encoded > 0) {
    print_out("  {} PNG or CMYK file{} encoded as RGB JPEG\n", result.re_encoded,
              result.re_encoded == 1 ? " was" : "s were");
  }
  print_out("next: lockstep train --data {}\n", to.output);
}

void warn_of_left_out(const PackResult& result, const std::string& output) {
  if (result.skipped == 0 && result.unused == 0) return;
  const auto count = [](std::int64_t entries, const char* one, const char* many) {
    return fmt::format("{} {}", entries, entries == 1 ? one : many);
  };
  std::vector<std::string> parts;
  if (result.skipped > 0) {
    parts.push_back(count(result.skipped, "image could not be read and was skipped",
                          "images could not be read and were skipped"));
  }
  if (result.unused > 0) {
    parts.push_back(count(result.unused, "entry that looks like data was left out",
                          "entries that look like data were left out"));
  }
  print_warning(
      fmt::format("{}; {}/{} says why", fmt::join(parts, ", "), output, skipped_list_name));
}

}  // namespace lockstep::cli
