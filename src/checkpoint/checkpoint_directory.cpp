#include "lockstep/checkpoint/checkpoint_directory.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view prefix = "step-";
constexpr std::string_view suffix = ".h5";

std::string file_name(std::int64_t step) {
  return fmt::format("{}{:08}{}", prefix, step, suffix);
}

/// nullopt if `name` is not a checkpoint name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  const char* begin = name.data() + prefix.size();
  const char* end = name.data() + name.size() - suffix.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0 || file_name(step) != name)
    return std::nullopt;
  return step;
}

std::optional<std::int64_t> step_of_link(const std::string& link) {
  std::error_code ignored;
  return step_of(std::filesystem::read_symlink(link, ignored).filename().string());
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::string path, std::int64_t keep,
                                         std::function<void()> before_change)
    : path_(std::move(path)), keep_(keep), before_change_(std::move(before_change)) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    fail(ExitStatus::cannot_write,
         "cannot create directory {} ({}); check --run-dir and its permissions", path_,
         error.message());
  }
  remove_stale_temporaries(path_);
}

std::string CheckpointDirectory::path_of(std::int64_t step) const {
  return path_ + "/" + file_name(step);
}

std::vector<std::int64_t> CheckpointDirectory::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  }
  if (error) {
    fail(ExitStatus::no_input, "cannot list {} ({}); check its permissions", path_,
         error.message());
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

void CheckpointDirectory::save(const CheckpointInfo& info, const NextTensor& next,
                               const std::function<void()>& on_progress) {
  if (!info.state) {
    fail(ExitStatus::internal,
         "a checkpoint without state cannot be kept in {} (it has no step); report this", path_);
  }
  const std::int64_t step = info.state->step;
  write_checkpoint(path_of(step), info, next,
                   {.on_progress = on_progress, .before_publish = before_change_});
  replace_symlink_atomically(path_ + "/latest", file_name(step), before_change_);
  // The best step may be an earlier one: a resumed run evaluates the step that it starts from.
  const std::int64_t best_step = info.state->best_step;
  std::error_code ignored_error;
  if (best_step == step || (best_step > 0 && step_of_link(path_ + "/best") != best_step &&
                            std::filesystem::exists(path_of(best_step), ignored_error))) {
    replace_symlink_atomically(path_ + "/best", file_name(best_step), before_change_);
  }

  // Files of later steps did not verify or belong to an abandoned history: do not count or remove
  // them.
  const std::optional<std::int64_t> best = step_of_link(path_ + "/best");
  std::int64_t kept = 0;
  for (const std::int64_t candidate : steps()) {
    if (candidate > step || keep_ <= 0 || kept++ < keep_ || candidate == best) continue;
    if (before_change_) before_change_();
    std::error_code ignored;  // an extra file does no harm
    std::filesystem::remove(path_of(candidate), ignored);
  }
}

std::optional<CheckpointDirectory::Found> CheckpointDirectory::newest() const {
  std::vector<std::string> rejected;
  for (const std::int64_t step : steps()) {
    try {
      CheckpointReader reader(path_of(step), CheckpointUse::resume);
      reader.verify();
      return Found{
          .reader = std::move(reader), .path = path_of(step), .rejected = std::move(rejected)};
    } catch (const Error& error) {
      rejected.emplace_back(error.what());
    }
  }
  if (rejected.empty()) return std::nullopt;
  std::string reasons;
  for (const std::string& reason : rejected) reasons += "\n  " + reason;
  fail(ExitStatus::bad_input,
       "no checkpoint in {} can be resumed from ({} tried); restore one, or start anew in another "
       "--run-dir:{}",
       path_, rejected.size(), reasons);
}

}  // namespace lockstep
