#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// A file of records that grows at its end.
class AppendFile final {
 public:
  /// Creates it where it is absent, or, `exclusive`, fails with errno EEXIST where it is there:
  /// then, and on any other failure, valid() is false.
  enum class Create { if_absent, exclusive };
  AppendFile(const std::string& path, Create create) noexcept;
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  [[nodiscard]] bool valid() const noexcept { return descriptor_ >= 0; }
  /// By one write() as a rule. A record that does not fit is taken back; false.
  bool append(std::string_view record) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep
