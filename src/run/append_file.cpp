#include "append_file.hpp"

#include "lockstep/core/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep {

AppendFile::AppendFile(const FilePath& path, Create create)
    : file_(open_output(path, O_WRONLY | O_APPEND | (create == Create::exclusive ? O_EXCL : 0),
                        "use another --run-dir")) {}

bool AppendFile::append(std::string_view record) noexcept {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t count = ::write(file_.get(), record.data(), record.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      // Remove the partial record, which would corrupt the next one; truncation needs no disk
      // space. If it fails, nothing else can be done.
      [[maybe_unused]] const int result = before >= 0 ? ::ftruncate(file_.get(), before) : -1;
      return false;
    }
    record.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace lockstep
