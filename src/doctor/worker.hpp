#pragma once

#include "gpu_probe.hpp"
#include "lockstep/doctor/examination.hpp"
#include "measure.hpp"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>

namespace lockstep::doctor {

/// Messages of a command from rank 0, and of the answer.
inline constexpr int command_tag = 1;
inline constexpr int answer_tag = 2;

/// What one rank does at rank 0's word; rank 0 has one too. A command is {"do": NAME, ...}.
class Worker final {
 public:
  /// Both outlive it.
  Worker(Mailbox& mailbox, const ExaminationOptions& options);

  [[nodiscard]] const std::string& node() const noexcept { return node_; }
  /// Its answer; what goes wrong is in there.
  [[nodiscard]] nlohmann::json perform(const nlohmann::json& command);

 private:
  [[nodiscard]] nlohmann::json listen();
  [[nodiscard]] nlohmann::json meet(const nlohmann::json& command);
  [[nodiscard]] nlohmann::json open_gpu(const nlohmann::json& command);
  [[nodiscard]] nlohmann::json reduce();

  Mailbox& mailbox_;
  const ExaminationOptions& options_;
  std::string node_;
  std::optional<Listener> listener_;  ///< of a node's first rank
  std::unique_ptr<GpuProbe> gpu_;     ///< once it is opened
};

}  // namespace lockstep::doctor
