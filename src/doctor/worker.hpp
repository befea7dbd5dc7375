#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/doctor/examination.hpp"
#include "measure.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep::doctor {

/// MPI tags of commands from rank 0 and of the answers.
inline constexpr int command_tag = 1;
inline constexpr int answer_tag = 2;

/// Performs rank 0's commands on one rank, including rank 0. A command is {"do": NAME, ...}.
class Worker final {
 public:
  /// Both references must outlive it.
  Worker(Mailbox& mailbox, const ExaminationOptions& options);

  [[nodiscard]] const std::string& node() const noexcept { return node_; }
  /// Returns the answer, including any error.
  [[nodiscard]] nlohmann::json perform(const nlohmann::json& command);

 private:
  [[nodiscard]] RankFacts describe() const;
  [[nodiscard]] RouteTarget listen();
  [[nodiscard]] Passage meet(const nlohmann::json& command);
  [[nodiscard]] nlohmann::json open_gpu(const nlohmann::json& command);
  [[nodiscard]] nlohmann::json reduce();

  Mailbox& mailbox_;
  const ExaminationOptions& options_;
  std::string node_;
  std::optional<Listener> listener_;  ///< on a node's first rank
  std::unique_ptr<GpuProbe> gpu_;     ///< null until opened
};

}  // namespace lockstep::doctor
