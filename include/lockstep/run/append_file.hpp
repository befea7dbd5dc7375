#pragma once

#include "lockstep/core/file_path.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// A file to which records are appended.
class AppendFile final {
 public:
  /// `if_absent` creates a missing file; `exclusive` fails with errno EEXIST if the file exists. On
  /// a failure, valid() is false. Error as open_output() for what is no file.
  enum class Create { if_absent, exclusive };
  AppendFile(const FilePath& path, Create create);

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(file_); }
  /// Error(cannot_write) of a file of a run's directory that is not valid(), with errno.
  [[noreturn]] static void cannot_write(const FilePath& path);
  /// Usually one write(). If the record does not fit, removes its written part and returns false.
  bool append(std::string_view record) noexcept;

 private:
  Descriptor file_;
};

}  // namespace lockstep
