#include "lockstep/run/append_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace lockstep {

AppendFile::AppendFile(const FilePath& path, Create create)
    : file_(open_output(path, O_WRONLY | O_APPEND | (create == Create::exclusive ? O_EXCL : 0),
                        "use another --run-dir")) {}

void AppendFile::cannot_write(const FilePath& path) {
  fail(ExitStatus::cannot_write, "cannot write {} ({}); check --run-dir and its permissions",
       path.text(), std::strerror(errno));
}

bool AppendFile::append(std::string_view record) noexcept {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  if (write_all(file_, std::as_bytes(std::span(record))) == 0) return true;
  // Remove the partial record, which would corrupt the next one; truncation needs no disk space. If
  // it fails, nothing else can be done.
  [[maybe_unused]] const int result = before >= 0 ? ::ftruncate(file_.get(), before) : -1;
  return false;
}

}  // namespace lockstep
