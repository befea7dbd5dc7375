#include "lockstep/run/terminal_size.hpp"

#include <sys/ioctl.h>

namespace lockstep {

TerminalSize terminal_size(int descriptor) {
  TerminalSize size;
  winsize found{};
  if (::ioctl(descriptor, TIOCGWINSZ, &found) != 0) return size;
  if (found.ws_col != 0) size.columns = found.ws_col;
  if (found.ws_row != 0) size.rows = found.ws_row;
  return size;
}

}  // namespace lockstep
