#include "lockstep/checkpoint/checkpoint_directory.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/parse_number.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <algorithm>
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
  const auto step = parse_number<std::int64_t>(
      std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  if (!step || *step < 0 || file_name(*step) != name) return std::nullopt;
  return step;
}

std::optional<std::int64_t> step_behind(const FilePath& link) {
  return step_of(name_behind(link));
}

}  // namespace

std::string latest_checkpoint(const FilePath& directory) {
  std::string name = name_behind(directory / "latest");
  return step_of(name) ? name : std::string();
}

CheckpointDirectory::CheckpointDirectory(FilePath path, std::int64_t keep,
                                         std::function<void()> before_change)
    : path_(std::move(path)), keep_(keep), before_change_(std::move(before_change)) {
  make_directories(path_, "check --run-dir and its permissions");
  remove_stale_temporaries(path_);
}

FilePath CheckpointDirectory::file(std::int64_t step) const {
  return path_ / file_name(step);
}

std::vector<std::int64_t> CheckpointDirectory::steps() const {
  std::vector<std::int64_t> steps;
  for (const DirectoryEntry& entry : entries_in(path_)) {
    const auto step = step_of(entry.name);
    if (step && entry.is_file()) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

/// Why the file system made no symbolic link; empty: it did.
std::string CheckpointDirectory::link(const char* name, std::int64_t step) {
  if (before_change_) before_change_();
  const FilePath path = path_ / name;
  try {
    const std::string reason = replace_file_link(path, file_name(step));
    if (reason.empty()) return {};
    return fmt::format(
        "{} has no symbolic links ({}); latest and best are text files with a checkpoint's name, "
        "which lockstep reads like links",
        path_.text(), reason);
  } catch (const Error& error) {
    // A link that names another checkpoint would mislead. The next save makes it again.
    const auto named = step_behind(path);
    if (named && *named != step) path.remove();
    return fmt::format("{} is left out, but its checkpoint is written: {}", path.text(),
                       error.what());
  }
}

std::string CheckpointDirectory::save(const CheckpointInfo& info, const NextTensor& next,
                                      const std::function<void()>& on_progress) {
  if (!info.state) {
    fail(ExitStatus::internal,
         "a checkpoint without state cannot be kept in {} (it has no step); report this",
         path_.text());
  }
  const std::int64_t step = info.state->step;
  write_checkpoint(file(step), info, next,
                   {.on_progress = on_progress, .before_publish = before_change_});
  std::string warning = link("latest", step);
  // The best step may be an earlier one: a resumed run evaluates the step that it starts from.
  const std::int64_t best_step = info.state->best_step;
  if (best_step == step ||
      (best_step > 0 && step_behind(path_ / "best") != best_step && file(best_step).exists())) {
    const std::string best_warning = link("best", best_step);
    if (warning.empty()) warning = best_warning;
  }

  // The best is kept without its link, too. Files of later steps did not verify or belong to an
  // abandoned history: do not count or remove them.
  const std::optional<std::int64_t> best = step_behind(path_ / "best");
  std::vector<std::int64_t> written;
  try {
    written = steps();
  } catch (const Error& error) {  // the next save removes what is too many
    if (warning.empty()) warning = error.what();
  }
  std::int64_t kept = 0;
  for (const std::int64_t candidate : written) {
    if (candidate > step || keep_ <= 0 || kept++ < keep_) continue;
    if (candidate == best || candidate == best_step) continue;
    if (before_change_) before_change_();
    file(candidate).remove();  // an extra file does no harm
  }
  return warning;
}

std::optional<CheckpointDirectory::Found> CheckpointDirectory::newest() const {
  std::vector<std::string> rejected;
  for (const std::int64_t step : steps()) {
    try {
      CheckpointReader reader(file(step), CheckpointUse::resume);
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
       path_.text(), rejected.size(), reasons);
}

}  // namespace lockstep
