#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A text file of lines "key, tab, value" in which what was found out once is kept; a key may have
/// tabs, a value has as many as its columns need. Of one process at a time; it is read when it is
/// first asked. A file that cannot be read holds nothing, and one that cannot be written is left,
/// as every start can find out anew.
class CacheFile final {
 public:
  struct Format {
    std::string_view header;  ///< the file's first line
    int columns = 1;          ///< of a value
    bool (*is_usable)(const std::string& value) = [](const std::string& value) {
      return !value.empty();
    };  ///< what is not is passed over
  };
  /// `path`: empty: nothing is read or kept.
  CacheFile(std::string path, const Format& format);

  [[nodiscard]] std::optional<std::string> find(const std::string& key);
  void add(const std::string& key, std::string value);
  /// Adds to the file what was added here, if anything was.
  void save();

 private:
  using Entries = std::map<std::string, std::string>;
  [[nodiscard]] Entries read() const;
  Entries& entries();

  std::string path_;
  Format format_;
  std::optional<Entries> entries_;
  bool changed_ = false;
};

/// A file of that name in lockstep/ in $XDG_CACHE_HOME, else in ~/.cache; empty where there is
/// neither.
[[nodiscard]] std::string cache_path(std::string_view name);

}  // namespace lockstep
