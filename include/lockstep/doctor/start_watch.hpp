#pragma once

#include "lockstep/core/descriptor.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::doctor {

/// Watches the start of MPI, which may hang, end the process by itself, or crash it: the process
/// forks, and the child goes on. Make it before there are threads.
///
/// In the child `outcome()` is empty; call `started()` when MPI has. The parent's constructor
/// returns when the child has ended. Where the child did not start in time, or ended before it did,
/// `report` is called with what happened, and the outcome is 1; the child is killed.
class StartWatch final {
 public:
  using Report = std::function<void(const std::string& what)>;
  /// Error(internal) where the process cannot fork.
  StartWatch(std::chrono::duration<double> limit, const Report& report);

  /// The parent's: the exit status to end with.
  [[nodiscard]] std::optional<int> outcome() const noexcept { return outcome_; }
  void started() noexcept;

 private:
  Descriptor to_parent_;
  std::optional<int> outcome_;
};

}  // namespace lockstep::doctor
