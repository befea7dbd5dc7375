#include "webdataset_listing.hpp"

#include "archive_file.hpp"
#include "image_name.hpp"
#include "label_file.hpp"
#include "lockstep/core/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t max_label_bytes = std::uint64_t{1} << 20;
constexpr std::int64_t max_label = (std::int64_t{1} << 24) - 1;  ///< as for --classes

/// Members whose names are equal up to the first dot.
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

std::int32_t label_in_json(const ArchiveFile& file, const TarMember& member) {
  const auto json = nlohmann::json::parse(text_of(file, member), nullptr, /*exceptions=*/false);
  if (json.is_object()) {
    for (const char* key : {"label", "cls", "class"}) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_number_integer()) continue;
      return checked(file, member, found->get<std::int64_t>());
    }
  }
  bad_label(file, member, "a number label, cls or class in a JSON object is expected");
}

void add(const ArchiveFile& file, const Sample& sample, std::int32_t container, ImageList& list) {
  const bool has_label = sample.cls || sample.json;
  if (!sample.image && !has_label) return;  // other data
  if (!sample.image || !has_label) {
    fail(
        ExitStatus::bad_input,
        "{}: sample {} has no {} (a sample is a .jpg, .jpeg or .png file with a .cls or .json file "
        "of the same name); check the archive",
        file.path(), sample.key, sample.image ? "label" : "image");
  }
  list.add(
      {.bytes = sample.image->bytes,
       .offset = sample.image->offset,
       .container = container,
       .label = sample.cls ? label_in_cls(file, *sample.cls) : label_in_json(file, *sample.json)},
      sample.image->name);
}

/// The word of an archive's name that says to which part it belongs.
enum class NamedPart { none, train, val };

NamedPart part_named_by(const std::string& file_name) {
  std::string letters = lower_case(file_name);
  std::replace_if(
      letters.begin(), letters.end(), [](char c) { return c < 'a' || c > 'z'; }, ' ');
  std::istringstream words(letters);
  for (std::string word; words >> word;) {
    if (word == "train" || word == "training") return NamedPart::train;
    if (word == "val" || word == "valid" || word == "validation") return NamedPart::val;
  }
  return NamedPart::none;
}

/// The names of a directory's tar archives, sorted.
std::vector<std::string> archives_in(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  std::string compressed;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;
    if (name.ends_with(".tar")) names.push_back(name);
    if (name.find(".tar.") != std::string::npos || name.ends_with(".tgz")) compressed = name;
  }
  if (error) {
    fail(ExitStatus::no_input, "cannot list {} ({}); check --input and its permissions",
         directory.string(), error.message());
  }
  if (names.empty()) {
    fail(ExitStatus::no_input, "{} holds no .tar file (--from webdataset reads them){}",
         directory.string(),
         compressed.empty() ? std::string("; check --input")
                            : fmt::format(", but {}; decompress it", compressed));
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Archives {
  std::vector<std::string> train;  ///< paths
  std::vector<std::string> val;
};

Archives find_archives(const fs::path& directory) {
  std::error_code ignored;
  Archives found;
  const auto take = [](const fs::path& folder, std::vector<std::string>& paths) {
    for (const std::string& name : archives_in(folder)) paths.push_back((folder / name).string());
  };
  if (fs::is_directory(directory / "train", ignored)) {
    take(directory / "train", found.train);
    if (fs::is_directory(directory / "val", ignored)) take(directory / "val", found.val);
    return found;
  }
  std::vector<std::string> others;
  for (const std::string& name : archives_in(directory)) {
    const NamedPart part = part_named_by(name);
    (part == NamedPart::train ? found.train
     : part == NamedPart::val ? found.val
                              : others)
        .push_back((directory / name).string());
  }
  if (found.train.empty() && found.val.empty()) found.train.swap(others);
  if (!others.empty() || found.train.empty()) {
    fail(ExitStatus::bad_input,
         "{} has {} archives of train and {} of val by their names, and {} others{} (training data "
         "is needed, and every archive is of one of the two); rename them, or move others away",
         directory.string(), found.train.size(), found.val.size(), others.size(),
         others.empty() ? "" : ", such as " + fs::path(others.front()).filename().string());
  }
  return found;
}

std::int64_t largest_label(const ImageList& list) {
  std::int64_t largest = -1;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    largest = std::max<std::int64_t>(largest, list[i].label);
  }
  return largest;
}

/// The same on all ranks: throws on all or none.
void require_labels_below(std::int64_t classes, const ImageList& list,
                          const std::vector<std::string>& containers) {
  for (std::int64_t i = 0; i < list.size(); ++i) {
    if (list[i].label < classes) continue;
    fail(ExitStatus::bad_input,
         "{}/{} has label {} (there are {} classes, by --class-names or the training samples); "
         "check both",
         containers[static_cast<std::size_t>(list[i].container)], list.name(i), list[i].label,
         classes);
  }
}

}  // namespace

ImageList list_samples(const ArchiveFile& file, std::int32_t container) {
  ImageList list;
  Sample sample;
  file.for_each_member([&](const TarMember& member) {
    const std::size_t base = member.name.find_last_of('/') + 1;
    // Not samples, by WebDataset's rules: files of macOS's tar, and metadata.
    const std::string_view file_name = std::string_view(member.name).substr(base);
    if (file_name.starts_with('.') || file_name.starts_with("__")) return;
    const std::size_t dot = member.name.find('.', base);
    if (dot == std::string::npos) return;
    std::string key = member.name.substr(0, dot);
    if (key != sample.key) {
      add(file, sample, container, list);
      sample = {.key = std::move(key), .image = {}, .cls = {}, .json = {}};
    }
    const std::string extension = lower_case(member.name.substr(dot + 1));
    std::optional<TarMember>* place = is_image_extension(extension) ? &sample.image
                                      : extension == "cls"          ? &sample.cls
                                      : extension == "json"         ? &sample.json
                                                                    : nullptr;
    if (place == nullptr) return;
    if (*place) {
      fail(ExitStatus::bad_input,
           "{}: sample {} has {} and {} (one of a kind is expected); check "
           "the archive",
           file.path(), sample.key, (*place)->name, member.name);
    }
    *place = member;
  });
  add(file, sample, container, list);
  return list;
}

ImageListing list_webdataset(const std::string& directory, const std::string& class_names,
                             Communicator& comm) {
  Archives found;
  std::vector<std::string> names;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    found = find_archives(directory);
    if (class_names.empty()) return;
    for (ClassName& name : parse_class_names(read_text(class_names))) {
      names.push_back(std::move(name.name));
    }
  });
  ImageListing listing{.class_names = broadcast_texts(comm, names),
                       .containers = broadcast_texts(comm, found.train),
                       .archives = true};
  const std::size_t train = listing.containers.size();
  const std::vector<std::string> val = broadcast_texts(comm, found.val);
  listing.containers.insert(listing.containers.end(), val.begin(), val.end());
  const auto list = [&](std::size_t archive) {
    return list_samples(ArchiveFile(listing.containers[archive]),
                        static_cast<std::int32_t>(archive));
  };
  listing.train = list_on_all_ranks(comm, train, list);
  listing.val = list_on_all_ranks(comm, val.size(), [&](std::size_t i) { return list(train + i); });

  listing.classes = static_cast<std::int64_t>(listing.class_names.size());
  if (class_names.empty()) listing.classes = largest_label(listing.train) + 1;
  require_labels_below(listing.classes, listing.train, listing.containers);
  require_labels_below(listing.classes, listing.val, listing.containers);
  return listing;
}

}  // namespace lockstep
