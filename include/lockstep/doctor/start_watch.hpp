#pragma once

#include "lockstep/core/descriptor.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::doctor {

/// Watches the start of MPI, which may hang, exit or crash the process: forks, and the child
/// continues. Construct it before any thread exists.
///
/// In the child, `outcome()` is empty; call `started()` once MPI has started. In the parent, the
/// constructor returns when the child has ended. If MPI does not start in time, kills the child. In
/// this case, or if the child ends before MPI starts, calls `report`, and the outcome is 1.
class StartWatch final {
 public:
  using Report = std::function<void(const std::string& what)>;
  /// Throws Error(internal) if the process cannot fork.
  StartWatch(std::chrono::duration<double> limit, const Report& report);

  /// In the parent: the exit status to return.
  [[nodiscard]] std::optional<int> outcome() const noexcept { return outcome_; }
  void started() noexcept;

 private:
  Descriptor to_parent_;
  std::optional<int> outcome_;
};

}  // namespace lockstep::doctor
