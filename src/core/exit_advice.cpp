#include "lockstep/core/exit_advice.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string advice_after(ExitStatus status) {
  const bool resumes = status == ExitStatus::internal || status == ExitStatus::stopped;
  return fmt::format(
      "(status {}: {})", static_cast<int>(status),
      resumes ? "submit the same command again; it resumes" : "the same command would fail again");
}

}  // namespace lockstep
