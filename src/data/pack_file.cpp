#include "pack_file.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

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
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  std::error_code error;
  if (!file) {
    fail(ExitStatus::no_input, "cannot read {} ({}); check the path and its permissions", path,
         std::strerror(errno));
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error)
    fail(ExitStatus::no_input, "cannot read {} ({}); check the path", path, error.message());
  bytes.resize(size);
  if (std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    fail(ExitStatus::no_input,
         "cannot read {} (it ended or failed before its {} bytes); check the disk", path, size);
  }
}

std::vector<std::byte> read_whole_file(const std::string& path) {
  std::vector<std::byte> bytes;
  read_whole_file(path, bytes);
  return bytes;
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

std::unique_ptr<PackSource> make_pixel_source(SourceInfo info, PixelPart train, PixelPart val) {
  return std::make_unique<PixelSource>(std::move(info), std::move(train), std::move(val));
}

}  // namespace lockstep
