#pragma once

#include "lockstep/doctor/judge.hpp"
#include "rounds.hpp"
#include "worker.hpp"

#include <functional>
#include <map>
#include <vector>

namespace lockstep::doctor {

/// Rank 0's part: what is asked of whom, and what is made of the answers.
class Coordinator final {
 public:
  /// All outlive it.
  Coordinator(Mailbox& mailbox, Worker& self, const ExaminationOptions& options);

  void examine();
  [[nodiscard]] const std::vector<Finding>& findings() const noexcept { return findings_; }
  /// Whether every rank answered, and reached those it should.
  [[nodiscard]] bool all_reached() const;

 private:
  using Command = std::function<nlohmann::json(int rank)>;
  using Answers = std::map<int, nlohmann::json>;
  struct Question {
    std::string phase;  ///< for the message on a rank that does not answer
    Command command;
    double limits = 1;  ///< how many limits an answer may take
  };
  /// Asks all of `ranks` at once, but for those that once did not answer; rank 0 does its own part
  /// meanwhile.
  [[nodiscard]] Answers ask(const std::vector<int>& ranks, const Question& question);
  [[nodiscard]] bool is_silent(int rank) const;

  void describe();
  void examine_neighbours();
  /// One round: `partner` gives each of `ranks` the one it meets, or -1; `listening` who listens
  /// where, of those that try each other's addresses too.
  struct Encounter {
    const std::vector<int>& ranks;
    std::function<int(int rank)> partner;
    std::string phase;
    const Answers& listening;
  };
  /// The pairs by their ranks, the lower first.
  [[nodiscard]] std::vector<NodePairFacts> meet(const Encounter& encounter);
  [[nodiscard]] std::vector<NodePairFacts> meet_nodes(const Round& round, const Answers& listening);
  void examine_nodes();
  [[nodiscard]] std::vector<int> everyone() const;
  /// Of a rank's node.
  [[nodiscard]] int number_of(int rank) const;
  void examine_clocks();
  /// What is wrong with them; empty where all that answer have one of their own.
  [[nodiscard]] std::string open_gpus();
  void examine_nccl();
  void examine_data();
  void examine_run_directory();

  Mailbox& mailbox_;
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
