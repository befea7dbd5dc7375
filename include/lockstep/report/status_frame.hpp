#pragma once

#include "lockstep/report/run_status.hpp"
#include "lockstep/report/styled_line.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::report {

struct FrameSize {
  std::size_t columns = 80;
  std::size_t rows = 0;  ///< 0: as many as there are to show
};

/// The lines of `lockstep watch`, at most `size.rows`, none wider than `size.columns`. If there are
/// too few rows, the least important lines are left out; if there are more, charts get higher.
[[nodiscard]] std::vector<StyledLine> frame_of(const RunStatus& status, FrameSize size,
                                               Charset charset);

/// The same, with one message.
[[nodiscard]] std::vector<StyledLine> message_frame(const std::string& message, FrameSize size,
                                                    Charset charset);

}  // namespace lockstep::report
