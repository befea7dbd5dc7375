#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A cache in a text file of lines "key, tab, value". A key may contain tabs; a value has as many
/// as its columns need. Used by one process; read on first use. An unreadable file counts as empty
/// and a failure to write is ignored, because every start can find out again.
class CacheFile final {
 public:
  struct Format {
    std::string_view header;  ///< the file's first line
    int columns = 1;          ///< per value
    bool (*is_usable)(const std::string& value) = [](const std::string& value) {
      return !value.empty();
    };  ///< unusable values are ignored
  };
  /// `path`: empty: nothing is read or written.
  CacheFile(std::string path, const Format& format);

  [[nodiscard]] std::optional<std::string> find(const std::string& key);
  void add(const std::string& key, std::string value);
  /// Adds new entries to the file, if there are any.
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

/// The file `name` in lockstep/ in $XDG_CACHE_HOME, else in ~/.cache; empty if neither is set.
[[nodiscard]] std::string cache_path(std::string_view name);

}  // namespace lockstep
