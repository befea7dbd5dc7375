#pragma once

#include "lockstep/doctor/judge.hpp"
#include "worker.hpp"

#include <functional>
#include <map>
#include <vector>

namespace lockstep::doctor {

/// Rank 0's part: what is asked of whom, and what is made of the answers.
class Conductor final {
 public:
  /// All outlive it.
  Conductor(Post& post, Worker& self, const ExaminationOptions& options);

  [[nodiscard]] std::vector<Finding> examine();
  /// Ranks that did not answer are asked no more.
  [[nodiscard]] bool all_answered() const noexcept { return silent_.empty(); }

 private:
  using Command = std::function<nlohmann::json(int rank)>;
  using Answers = std::map<int, nlohmann::json>;
  struct Question {
    std::string phase;  ///< for the message on a rank that does not answer
    Command command;
    double limits = 1;  ///< how many limits an answer may take
  };
  /// Asks all of `ranks` at once; rank 0 does its own part meanwhile.
  [[nodiscard]] Answers ask(const std::vector<int>& ranks, const Question& question);
  [[nodiscard]] bool is_silent(int rank) const;

  void describe();
  void examine_neighbours();
  /// Each node's partner, by number.
  using Round = std::vector<std::optional<int>>;
  [[nodiscard]] std::vector<NodePairFacts> meet(const Round& round, const Answers& listening);
  void examine_nodes();
  void examine_clocks();
  void examine_nccl();
  void examine_data();
  void examine_run_directory();

  Post& post_;
  Worker& self_;
  const ExaminationOptions& options_;
  std::vector<Finding> findings_;
  std::vector<SilentRank> silent_;
  std::vector<RankFacts> ranks_;    ///< of those that answer
  std::vector<int> node_of_;        ///< by rank; -1: it does not answer
  std::vector<std::string> nodes_;  ///< names, in the order of their first ranks
  std::vector<int> leaders_;        ///< first ranks of the nodes
};

}  // namespace lockstep::doctor
