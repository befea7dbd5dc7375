#include "coordinator.hpp"
#include "facts_json.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>

namespace lockstep::doctor {
namespace {

/// The error of the lowest rank that has one; empty: none.
std::string first_error(const std::map<int, nlohmann::json>& answers) {
  for (const auto& [rank, answer] : answers) {
    std::string error = answer.at("error").get<std::string>();
    if (!error.empty()) return error;
  }
  return "";
}

}  // namespace

std::string Coordinator::open_gpus() {
  const auto command = [&](int rank) {
    const auto place = node_of_.begin() + rank;
    return nlohmann::json{{"do", "gpu"},
                          {"local_rank", std::count(node_of_.begin(), place, *place)},
                          {"local_size", std::count(node_of_.begin(), node_of_.end(), *place)}};
  };
  const Answers answers =
      ask(everyone(), {.phase = "opening its GPU", .command = command, .limits = 2});
  std::string error = first_error(answers);
  if (!error.empty()) return error;
  std::vector<TakenDevice> taken;
  for (const auto& [rank, answer] : answers) {
    taken.push_back({.host = nodes_[static_cast<std::size_t>(number_of(rank))],
                     .uuid = answer.at("uuid").get<std::string>()});
  }
  try {
    require_own_devices(taken);
  } catch (const Error& shared) {
    return shared.what();
  }
  return "";
}

void Coordinator::examine_nccl() {
  const bool all_have_one = std::all_of(ranks_.begin(), ranks_.end(),
                                        [](const RankFacts& rank) { return rank.gpu_usable; });
  // With one rank there is nothing to reduce, and training does not start NCCL.
  if (mailbox_.size() == 1 || !all_have_one || !all_reached()) return;
  NcclFacts facts{.error = open_gpus()};
  if (facts.error.empty()) {
    // The start of NCCL is collective and would hang if a rank is unreachable.
    if (!silent_.empty()) return;
    const Answers answers =
        ask(everyone(), {.phase = "NCCL", .command = same("nccl"), .limits = 2});
    facts.error = first_error(answers);
    for (const auto& [rank, answer] : answers) {
      const double bandwidth = answer.at("bandwidth").get<double>();
      facts.bandwidth = rank == 0 ? bandwidth : std::min(facts.bandwidth, bandwidth);
    }
  }
  findings_.push_back(judge_nccl(facts));
}

}  // namespace lockstep::doctor
