#include "lockstep/core/print.hpp"

#include <unistd.h>

namespace lockstep {
namespace {

/// A full disk or a closed pipe is found at the end of main().
void write(std::FILE* file, std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), file));
}

}  // namespace

void detail::print_escaped(std::FILE* file, std::string_view text) {
  // Joined texts have not been escaped one by one.
  write(file, escape_controls(text));
}

void print_exact(std::string_view text) {
  if (::isatty(STDOUT_FILENO) == 1) {
    detail::print_escaped(stdout, text);
  } else {
    write(stdout, text);
  }
}

}  // namespace lockstep
