#include "archive_file.hpp"
#include "class_folder.hpp"
#include "image_list.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

namespace lockstep {
namespace {

constexpr std::uint64_t max_label_bytes = std::uint64_t{1} << 20;
constexpr std::int64_t max_label = (std::int64_t{1} << 24) - 1;  ///< as for --classes

/// Members whose names are equal up to the dot before the extension.
struct Sample {
  std::string key;
  std::optional<TarMember> image;
  std::optional<TarMember> cls;
  std::optional<TarMember> json;
};

std::string text_of(const ArchiveFile& file, const TarMember& member) {
  if (member.bytes > max_label_bytes) {
    fail(ExitStatus::bad_input, "{}/{} has {} bytes (a label has at most {}); check the archive",
         file.path(), member.name, member.bytes, max_label_bytes);
  }
  std::string text(member.bytes, '\0');
  file.read(member.offset, std::as_writable_bytes(std::span(text)));
  return text;
}

[[noreturn]] void bad_label(const ArchiveFile& file, const TarMember& member, const char* reason) {
  fail(ExitStatus::bad_input, "{}/{} holds no label ({}); check the archive", file.path(),
       member.name, reason);
}

std::int32_t checked(const ArchiveFile& file, const TarMember& member, std::int64_t label) {
  if (label < 0 || label > max_label) {
    bad_label(file, member, "a label is a number from 0 to 16777215");
  }
  return static_cast<std::int32_t>(label);
}

std::int32_t label_in_cls(const ArchiveFile& file, const TarMember& member) {
  const std::string text = text_of(file, member);
  const char* end = text.data() + text.size();
  std::int64_t label = -1;
  const auto [rest, error] = std::from_chars(text.data(), end, label);
  const bool only_blanks =
      std::all_of(rest, end, [](char c) { return c == ' ' || c == '\n' || c == '\r'; });
  if (error != std::errc{} || !only_blanks) bad_label(file, member, "it is not one number");
  return checked(file, member, label);
}

/// nullopt if there is no number. Error(bad_input) if there are two, or it is no label.
std::optional<std::int32_t> number_in_json(const ArchiveFile& file, const TarMember& member) {
  const Json json = parse_json(text_of(file, member)).value_or(Json());
  std::optional<std::int32_t> label;
  if (!json.is_object()) return label;
  for (const char* key : {"label", "cls", "class"}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer()) continue;
    const std::int32_t number = checked(file, member, found->get<std::int64_t>());
    if (label && *label != number) bad_label(file, member, "it has two different numbers");
    label = number;
  }
  return label;
}

std::int32_t label_of(const ArchiveFile& file, const std::optional<TarMember>& cls,
                      const std::optional<TarMember>& json) {
  const auto in_json = json ? number_in_json(file, *json) : std::nullopt;
  if (!cls) {
    if (!in_json) {
      bad_label(file, *json, "a number label, cls or class in a JSON object is expected");
    }
    return *in_json;
  }
  const std::int32_t in_cls = label_in_cls(file, *cls);
  if (in_json && *in_json != in_cls) {
    fail(ExitStatus::bad_input,
         "{}: {} is {}, but {} has {} (a sample has one label); check the "
         "archive",
         file.path(), cls->name, in_cls, json->name, *in_json);
  }
  return in_cls;
}

/// Collects the members of one archive by sample.
class SampleCollector final {
 public:
  explicit SampleCollector(const ArchiveFile& file) : file_(file) {}

  void add(const TarMember& member) {
    const std::string_view name =
        std::string_view(member.name).substr(member.name.find_last_of('/') + 1);
    if (is_hidden_path(member.name)) {
      fates_.leave_out(hidden_reason, path_of(member));
    } else if (name.starts_with("__")) {
      fates_.leave_out("metadata, by its name", path_of(member));
    } else if (auto* place = place_of(member); place == nullptr) {
      others_.push_back(member);
    } else if (*place) {
      fail(ExitStatus::bad_input,
           "{}: sample {} has {} and {} (one of a kind is expected); check "
           "the archive",
           file_.path(), key_of(member), (*place)->name, member.name);
    } else {
      *place = member;
    }
  }

  ListedEntries finish(std::int32_t container, OnBad on_bad) {
    ListedEntries listed;
    for (const Sample& sample : samples_) list(sample, container, on_bad, listed);
    for (const TarMember& other : others_) {
      if (belongs_to_sample(other)) {
        fates_.leave_out("other data of a sample", path_of(other));
      } else {
        fates_.refuse("a member that belongs to no sample", path_of(other));
      }
    }
    listed.fates.append(fates_);
    return listed;
  }

 private:
  [[nodiscard]] std::string path_of(const TarMember& member) const {
    return file_.path() + "/" + member.name;
  }
  [[nodiscard]] static std::string key_of(const TarMember& member) {
    return member.name.substr(0, member.name.find_last_of('.'));
  }

  /// Where a member that makes a sample belongs; nullptr for any other.
  std::optional<TarMember>* place_of(const TarMember& member) {
    const std::string extension = extension_of(member.name);
    const bool is_image = has_image_extension(member.name);
    if (!is_image && extension != "cls" && extension != "json") return nullptr;
    const auto [found, is_new] = indices_.emplace(key_of(member), samples_.size());
    if (is_new) samples_.push_back({.key = found->first, .image = {}, .cls = {}, .json = {}});
    Sample& sample = samples_[found->second];
    return is_image ? &sample.image : extension == "cls" ? &sample.cls : &sample.json;
  }

  [[nodiscard]] bool belongs_to_sample(const TarMember& member) const {
    const std::size_t base = member.name.find_last_of('/') + 1;
    for (std::size_t dot = member.name.find('.', base); dot != std::string::npos;
         dot = member.name.find('.', dot + 1)) {
      if (indices_.contains(member.name.substr(0, dot))) return true;
    }
    return false;
  }

  void list(const Sample& sample, std::int32_t container, OnBad on_bad, ListedEntries& listed) {
    if (!sample.image) {
      for (const auto& member : {sample.cls, sample.json}) {
        if (member) fates_.refuse("a label without an image of the same name", path_of(*member));
      }
      return;
    }
    if (!sample.cls && !sample.json) {
      fates_.refuse("an image without a label (a .cls or .json file of the same name)",
                    path_of(*sample.image));
      return;
    }
    for (const auto& member : {sample.cls, sample.json}) {
      if (member) fates_.leave_out("label of a sample", path_of(*member));
    }
    const JudgedFile judged = file_.judge(*sample.image);
    const bool is_special = !std::string_view(sample.image->special).empty();
    if (judged.use == ImageUse::refused && (on_bad == OnBad::stop || is_special)) {
      fates_.refuse(judged.reason, path_of(*sample.image));
      return;
    }
    listed.images.add({.bytes = sample.image->bytes,
                       .offset = sample.image->offset,
                       .container = container,
                       .label = label_of(file_, sample.cls, sample.json)},
                      sample.image->name);
  }

  const ArchiveFile& file_;
  std::vector<Sample> samples_;                           ///< in the order of their first members
  std::unordered_map<std::string, std::size_t> indices_;  ///< by key
  std::vector<TarMember> others_;
  EntryFates fates_;
};

}  // namespace

ListedEntries list_samples(const ArchiveFile& file, std::int32_t container, OnBad on_bad) {
  SampleCollector samples(file);
  file.for_each_member([&](const TarMember& member) { samples.add(member); });
  return samples.finish(container, on_bad);
}

}  // namespace lockstep
