#pragma once

#include "lockstep/doctor/judge.hpp"
#include "rounds.hpp"
#include "worker.hpp"

#include <functional>
#include <map>
#include <vector>

namespace lockstep::doctor {

/// Rank 0's part: sends commands to the ranks and judges their answers.
class Coordinator final {
 public:
  /// All references must outlive it.
  Coordinator(Mailbox& mailbox, Worker& self, const ExaminationOptions& options);

  void examine();
  [[nodiscard]] const std::vector<Finding>& findings() const noexcept { return findings_; }
  /// Whether every rank answered and reached its neighbours and the other nodes.
  [[nodiscard]] bool all_reached() const;

 private:
  using Command = std::function<nlohmann::json(int rank)>;
  using Answers = std::map<int, nlohmann::json>;
  /// The same command for every rank.
  [[nodiscard]] static Command same(const char* what) {
    return [what](int) { return nlohmann::json{{"do", what}}; };
  }
  struct Question {
    std::string phase;  ///< for the message about a rank that does not answer
    Command command;
    double limits = 1;  ///< deadline for an answer, in multiples of the limit
  };
  /// Asks all `ranks` at once, except those that failed to answer before; rank 0 performs its own
  /// part meanwhile.
  [[nodiscard]] Answers ask(const std::vector<int>& ranks, const Question& question);
  [[nodiscard]] bool is_silent(int rank) const;

  void describe();
  void examine_neighbours();
  /// One round: `partner` returns the rank that each of `ranks` meets, or -1. `listening`: ranks
  /// with a TCP listener, whose partners also try their addresses.
  struct Encounter {
    const std::vector<int>& ranks;
    std::function<int(int rank)> partner;
    std::string phase;
    const Answers& listening;
  };
  /// Returns the pairs by rank, the lower rank first.
  [[nodiscard]] std::vector<NodePairFacts> meet(const Encounter& encounter);
  [[nodiscard]] std::vector<NodePairFacts> meet_nodes(const Round& round, const Answers& listening);
  void examine_nodes();
  [[nodiscard]] std::vector<int> everyone() const;
  /// Index of a rank's node in nodes_.
  [[nodiscard]] int number_of(int rank) const;
  void examine_clocks();
  /// Opens the ranks' GPUs. Returns an error; empty if all ranks that answer have separate GPUs.
  [[nodiscard]] std::string open_gpus();
  void examine_nccl();
  /// What the first ranks of nodes see of --data. Those that do not answer are left out.
  [[nodiscard]] std::vector<DataFacts> read_data(const std::vector<int>& leaders);
  void examine_data();
  void examine_run_directory();

  Mailbox& mailbox_;
  Worker& self_;
  const ExaminationOptions& options_;
  std::vector<Finding> findings_;
  std::vector<SilentRank> silent_;
  std::vector<RankFacts> ranks_;    ///< of ranks that answered
  std::vector<int> node_of_;        ///< node index by rank; -1: did not answer
  std::vector<std::string> nodes_;  ///< node names, in the order of their first ranks
  std::vector<int> leaders_;        ///< first rank of each node
};

}  // namespace lockstep::doctor
