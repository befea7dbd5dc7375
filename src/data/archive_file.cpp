#include "archive_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

/// Leaves room below the usual limit of 1024 descriptors for MPI's.
constexpr std::size_t most_open = 256;

constexpr const char* suggestion = "check --input, which all nodes must see";

}  // namespace

ArchiveFile::ArchiveFile(std::string path)
    : path_(std::move(path)),
      file_(open_input(path_, suggestion)),
      size_(size_of(file_, path_, suggestion)) {}

void ArchiveFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const std::size_t count = read_input(file_, path_, offset, bytes, suggestion);
  if (count < bytes.size()) {
    fail(ExitStatus::no_input, "{} ends at byte {} (it was longer when it was listed); pack again",
         path_, offset + count);
  }
}

JudgedFile ArchiveFile::judge(const TarMember& member) const {
  if (const std::string special = member.special; !special.empty()) {
    if (!has_image_extension(member.name)) return {.reason = special};
    return {.use = ImageUse::refused, .reason = special + " that is named as an image"};
  }
  std::array<std::byte, first_image_bytes> buffer{};
  return judge_image(member.name, [&]() -> std::span<const std::byte> {
    const auto first =
        std::span(buffer).first(std::min<std::uint64_t>(member.bytes, buffer.size()));
    read(member.offset, first);
    return first;
  });
}

void ArchiveFile::for_each_member(const TarMember& inner,
                                  FunctionRef<void(const TarMember&)> visit) const {
  const auto read_bytes = [this](std::uint64_t offset, std::span<std::byte> bytes) {
    read(offset, bytes);
  };
  lockstep::for_each_member({.path = inner.name.empty() ? path_ : path_ + "/" + inner.name,
                             .begin = inner.offset,
                             .end = inner.offset + inner.bytes,
                             .read = read_bytes},
                            visit);
}

void ArchiveFiles::read(const std::string& path, std::uint64_t offset, std::span<std::byte> bytes) {
  auto found = open_.find(path);
  if (found == open_.end()) {
    // Images are read in random order, so which archive is closed does not matter.
    if (open_.size() == most_open) open_.erase(open_.begin());
    found = open_.emplace(path, ArchiveFile(path)).first;
  }
  found->second.read(offset, bytes);
}

}  // namespace lockstep
