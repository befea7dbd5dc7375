#pragma once

#include "image_kind.hpp"
#include "lockstep/core/descriptor.hpp"
#include "tar_archive.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An open file that is read at random places.
class ArchiveFile final {
 public:
  /// Error(no_input) if it cannot be opened.
  explicit ArchiveFile(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Reads exactly these bytes. Error(no_input).
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// judge_image() of a member; one that is no regular file is refused if it is named as an image.
  [[nodiscard]] JudgedFile judge(const TarMember& member) const;

  /// Visits the entries of the archive but folders, or those of the archive `inner` in it.
  void for_each_member(FunctionRef<void(const TarMember&)> visit) const {
    for_each_member({.name = "", .offset = 0, .bytes = size_}, visit);
  }
  void for_each_member(const TarMember& inner, FunctionRef<void(const TarMember&)> visit) const;

 private:
  std::string path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

/// Archives that are opened when they are first read, with a bounded number of them open.
class ArchiveFiles final {
 public:
  /// Error(no_input).
  void read(const std::string& path, std::uint64_t offset, std::span<std::byte> bytes);

 private:
  std::map<std::string, ArchiveFile> open_;
};

}  // namespace lockstep
