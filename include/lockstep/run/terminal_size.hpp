#pragma once

#include <cstddef>

namespace lockstep {

struct TerminalSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

/// Of the terminal behind `descriptor`; the defaults if it is none or does not tell.
[[nodiscard]] TerminalSize terminal_size(int descriptor);

}  // namespace lockstep
