#include "pack_file.hpp"

#include "image_kind.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text_file.hpp"
#include "part_names.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

namespace lockstep {
namespace {

class PixelSource final : public PackSource {
 public:
  PixelSource(SourceInfo info, PixelPart train, PixelPart val)
      : info_(std::move(info)),
        train_(std::move(train)),
        val_(std::move(val)),
        image_bytes_(static_cast<std::size_t>(info_.image.channels * info_.image.height *
                                              info_.image.width)) {
    for (const PixelPart* part : {&train_, &val_}) {
      info_.identity = crc32c(part->images, info_.identity);
      info_.identity = crc32c(std::as_bytes(std::span(part->labels)), info_.identity);
    }
  }

  [[nodiscard]] const SourceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] std::int64_t samples(SourcePart part) const noexcept override {
    return static_cast<std::int64_t>(of(part).labels.size());
  }
  [[nodiscard]] std::uint64_t bytes_of(SourcePart, std::int64_t) const override {
    return image_bytes_;
  }
  [[nodiscard]] std::int64_t label(SourcePart part, std::int64_t index) const override {
    return of(part).labels[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::string describe(SourcePart part, std::int64_t index) const override {
    return fmt::format("{} sample {}", part == SourcePart::train ? "training" : "test", index);
  }
  [[nodiscard]] ReadResult read(SourcePart part, std::int64_t index, RawSample& sample) override {
    const auto i = static_cast<std::size_t>(index);
    const auto image = std::span(of(part).images).subspan(i * image_bytes_, image_bytes_);
    sample.bytes.assign(image.begin(), image.end());
    sample.label = of(part).labels[i];
    return {.pixels = image};
  }

 private:
  [[nodiscard]] const PixelPart& of(SourcePart part) const noexcept {
    return part == SourcePart::train ? train_ : val_;
  }

  SourceInfo info_;
  PixelPart train_;
  PixelPart val_;
  std::size_t image_bytes_;
};

}  // namespace

void read_whole_file(const std::string& path, std::vector<std::byte>& bytes) {
  const Descriptor file = open_input(path, "check the path and its permissions");
  bytes.resize(static_cast<std::size_t>(size_of(file, path, "check the disk")));
  if (read_input(file, path, 0, bytes, "check the disk") != bytes.size()) {
    fail(ExitStatus::no_input, "cannot read {} (it ended before its {} bytes); check the disk",
         path, bytes.size());
  }
}

std::vector<std::byte> read_whole_file(const std::string& path) {
  std::vector<std::byte> bytes;
  read_whole_file(path, bytes);
  return bytes;
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

std::vector<std::string> read_lines(const std::string& path) {
  if (!is_there(path)) return {};
  std::istringstream text(read_text_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    while (line.ends_with(' ')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

EntryFates entries_beside(const std::string& directory, const std::vector<std::string>& used) {
  EntryFates fates;
  for (const DirectoryEntry& entry : entries_in(directory)) {
    const std::string path = (std::filesystem::path(directory) / entry.name).string();
    if (std::ranges::find(used, path) != used.end()) continue;
    const std::string name = lower_case(entry.name);
    const bool is_part =
        name.starts_with("t10k") || evaluation_part(part_word_in(name)).has_value();
    // The same file, packed and unpacked, is there twice.
    const bool is_twin = std::ranges::any_of(used, [&](const std::string& other) {
      return other == path + ".gz" || other + ".gz" == path;
    });
    if (is_part && !is_twin) {
      fail(
          ExitStatus::bad_input,
          "{} looks like test data, but it is not a file that is read; give it its published name, "
          "or move it out of --input",
          path);
    }
    fates.leave_out(is_hidden_or_temporary(entry.name) ? "hidden or temporary, by its name"
                                                       : "not one of the files that are read",
                    path);
  }
  return fates;
}

std::unique_ptr<PackSource> make_pixel_source(SourceInfo info, PixelPart train, PixelPart val) {
  return std::make_unique<PixelSource>(std::move(info), std::move(train), std::move(val));
}

}  // namespace lockstep
