#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_path.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::h5 {

using Bytes = std::vector<std::byte>;

/// The address of what is not there.
inline constexpr std::uint64_t undefined = ~std::uint64_t{0};

/// A link of a group. Only hard ones have an address.
struct Link {
  std::string name;
  std::uint64_t address = undefined;
  std::uint64_t order = 0;     ///< of creation, if the group stores it
  std::string_view kind = {};  ///< of another link: "a soft link"; empty: hard
};

/// All links of a group.
class Links final {
 public:
  /// `links`: by name; `names`: in the order of children().
  Links(std::vector<Link> links, std::vector<std::string> names) noexcept
      : links_(std::move(links)), names_(std::move(names)) {}
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// Null if there is none.
  [[nodiscard]] const Link* find(const std::string& name) const {
    const auto found = std::ranges::lower_bound(links_, name, {}, &Link::name);
    return found != links_.end() && found->name == name ? &*found : nullptr;
  }

 private:
  std::vector<Link> links_;
  std::vector<std::string> names_;
};

/// The bytes of one opened file. Addresses begin after its user block. Thread-safe.
class Input final {
 public:
  /// Opens a regular file and reads its superblock. As open_file().
  explicit Input(const FilePath& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Of the file's user block, which no address includes.
  [[nodiscard]] std::uint64_t base() const noexcept { return base_; }
  /// Address of the root group's object header.
  [[nodiscard]] std::uint64_t root() const noexcept { return root_; }

  /// Error(bad_input), with `what`, if the file does not hold these bytes.
  void read(std::uint64_t address, std::span<std::byte> bytes, std::string_view what) const;
  [[nodiscard]] Bytes read(std::uint64_t address, std::uint64_t count, std::string_view what) const;
  /// The same, of a block that begins with `signature`.
  [[nodiscard]] Bytes read_block(std::uint64_t address, std::uint64_t count,
                                 std::string_view signature) const;
  /// The same, of one that ends with its checksum.
  [[nodiscard]] Bytes read_checked(std::uint64_t address, std::uint64_t count,
                                   std::string_view signature) const;
  /// Error(bad_input) unless `stored` is the checksum of `bytes`.
  void require_checksum(std::span<const std::byte> bytes, std::uint32_t stored,
                        std::string_view what) const;
  /// Whether the file can hold so many bytes at an address.
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t count) const noexcept;

  /// Error(bad_input): the bytes are not what the format says.
  [[noreturn]] void damaged(std::string_view what) const;

  /// Links of the group with its header at `address`, read once by `read`.
  template <typename Read>
  const Links& links(std::uint64_t address, const Read& read) const {
    const std::lock_guard lock(links_mutex_);
    const auto found = links_.find(address);
    return found != links_.end() ? found->second : links_.emplace(address, read()).first->second;
  }

 private:
  void read_file(std::uint64_t offset, std::span<std::byte> bytes, std::string_view what) const;
  void read_superblock();

  std::string path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
  std::uint64_t base_ = 0;
  std::uint64_t root_ = undefined;
  // Metadata are many small blocks close together.
  mutable std::mutex window_mutex_;
  mutable Bytes window_;
  mutable std::uint64_t window_begin_ = 0;
  mutable std::mutex links_mutex_;
  mutable std::map<std::uint64_t, Links> links_;  ///< by the group's address
};

/// Counts the bytes of a structure's parts. They do not overlap, so all of them are not longer than
/// the file: else the structure goes round, or shares parts, and might have no end.
class TakenBytes final {
 public:
  TakenBytes(const Input& input, std::string_view what) noexcept : input_(&input), what_(what) {}
  /// Error(bad_input).
  void take(std::uint64_t bytes) {
    if (bytes > input_->size() - taken_) {
      input_->damaged(std::string(what_) + " would take more bytes than there are");
    }
    taken_ += bytes;
  }

 private:
  const Input* input_;
  std::string_view what_;
  std::uint64_t taken_ = 0;
};

/// Takes little-endian values from the front of a block, and never reads past its end.
class Cursor final {
 public:
  Cursor(const Input& input, std::span<const std::byte> bytes, std::string_view what) noexcept
      : input_(&input), rest_(bytes), what_(what) {}

  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }
  std::span<const std::byte> bytes(std::uint64_t count) {
    if (count > rest_.size()) input_->damaged(what_);
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
    return taken;
  }
  void skip(std::uint64_t count) { bytes(count); }
  /// An unsigned number of up to 8 bytes.
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const std::byte byte : bytes(count)) {
      value |= std::to_integer<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
  std::uint64_t address() { return number(8); }
  std::string text(std::uint64_t count) {
    const auto taken = bytes(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  /// Error unless the next byte is `version`.
  void expect(std::uint8_t version) {
    if (byte() != version) input_->damaged(what_);
  }

 private:
  const Input* input_;
  std::span<const std::byte> rest_;
  std::string_view what_;
};

}  // namespace lockstep::h5
