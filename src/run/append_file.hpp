#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// A file to which records are appended.
class AppendFile final {
 public:
  /// `if_absent` creates a missing file; `exclusive` fails with errno EEXIST if the file exists. On
  /// any failure, valid() is false.
  enum class Create { if_absent, exclusive };
  AppendFile(const std::string& path, Create create) noexcept;
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  [[nodiscard]] bool valid() const noexcept { return descriptor_ >= 0; }
  /// Usually one write(). If the record does not fit, removes its written part and returns false.
  bool append(std::string_view record) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep
