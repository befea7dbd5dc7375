#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The entries of an input that are no samples: each has one reason. Folders that are walked, and
/// archives that are read, are no entries; what is in them is.
class EntryFates final {
 public:
  /// Entries left out for one reason.
  struct LeftOut {
    std::int64_t entries = 0;
    std::vector<std::string> first = {};  ///< paths, at most most_names
    friend bool operator==(const LeftOut&, const LeftOut&) = default;
  };
  /// An entry that looks like data and is not used. It stops the packing, or is listed.
  struct Unused {
    std::string path;
    std::string reason;  ///< "a WebP image (JPEG and PNG are read)"
    friend bool operator==(const Unused&, const Unused&) = default;
  };
  static constexpr std::size_t most_names = 3;

  void leave_out(const std::string& reason, std::string path);
  void refuse(std::string reason, std::string path);
  void append(const EntryFates& other);

  [[nodiscard]] const std::map<std::string, LeftOut>& left_out() const noexcept {
    return left_out_;
  }
  [[nodiscard]] const std::vector<Unused>& unused() const noexcept { return unused_; }
  /// Both, by reason.
  [[nodiscard]] std::map<std::string, LeftOut> all() const;

  /// Error(bad_input) that names the first unused entry and counts the others, if there is one.
  void require_all_used() const;

  /// Texts without zero bytes, for a rank of the same program, and back.
  [[nodiscard]] std::vector<std::string> to_texts() const;
  [[nodiscard]] static EntryFates from_texts(const std::vector<std::string>& texts);

  friend bool operator==(const EntryFates&, const EntryFates&) = default;

 private:
  std::map<std::string, LeftOut> left_out_;
  std::vector<Unused> unused_;
};

}  // namespace lockstep
