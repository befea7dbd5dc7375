#pragma once

#include "lockstep/core/file_path.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What the logs of a run's ranks tell after the ranks have ended. Only files of the run directory
/// alone are read: no link is followed, and a log with a second name counts as absent.
namespace lockstep {

enum class LoggedEnd {
  nothing,     ///< rank 0 has logged nothing
  unfinished,  ///< the log breaks off
  stopped,     ///< on request, or before the time limit
  finished,
};
/// What rank 0 has logged since its log had `bytes`.
[[nodiscard]] LoggedEnd logged_end(const OpenDirectory& run, std::uint64_t bytes);

/// Hosts that the logs name, sorted.
struct NamedHosts {
  /// By more than half of the ranks that have logged anything. The ranks on a node that is cut off
  /// name all other nodes, but they are few.
  std::vector<std::string> unreachable = {};  ///< their node does not answer
  std::vector<std::string> suspect = {};      ///< these, and those that are gone, late or drifted
  std::vector<std::string> slow = {};         ///< by rank 0
};
/// Reads what was logged at or after `since`, a local time as the logs have it.
[[nodiscard]] NamedHosts named_hosts(const OpenDirectory& run, std::string_view since);

}  // namespace lockstep
