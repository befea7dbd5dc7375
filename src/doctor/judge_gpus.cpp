#include "lockstep/compute/device_plan.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace lockstep::doctor {

namespace {

/// A rank that cannot have a GPU of its own.
std::optional<Finding> find_missing_gpu(std::span<const RankFacts> ranks) {
  std::map<std::string, int> ranks_on;
  for (const RankFacts& rank : ranks) ++ranks_on[rank.node];
  for (const RankFacts& rank : ranks) {
    const int local = ranks_on[rank.node];
    if (rank.gpus >= local || local == 1) continue;
    if (rank.gpus == 1) {
      return Finding{
          .check = "gpus",
          .verdict = Verdict::warn,
          .text = fmt::format(
              "rank {} on {} sees 1 GPU beside {} ranks (--gpus-per-task or --gpu-bind hides the "
              "others', and NCCL then goes without peer access; or ranks share one GPU, which NCCL "
              "refuses); use --gpus-per-node={} and neither of them",
              rank.rank, rank.node, local - 1, local)};
    }
    return Finding{.check = "gpus",
                   .verdict = Verdict::fail,
                   .text = fmt::format("{} ranks on {} see {} GPUs (NCCL needs one for each rank); "
                                       "start {} ranks a node, or train with --comm mpi",
                                       local, rank.node, rank.gpus, rank.gpus)};
  }
  return std::nullopt;
}

/// GPUs that do not reach each other's memory.
std::optional<Finding> find_unreachable_gpu(std::span<const RankFacts> ranks) {
  for (const RankFacts& rank : ranks) {
    if (rank.gpu_pairs_reaching == rank.gpu_pairs) continue;
    return Finding{.check = "gpus",
                   .verdict = Verdict::warn,
                   .text = fmt::format(
                       "GPUs {} on {} do not reach each other's memory ({} of {} pairs do; NCCL "
                       "goes through the host's for the others); see nvidia-smi topo -m, and "
                       "whether PCIe's access control or a virtual machine is between them",
                       rank.gpus_apart, rank.node, rank.gpu_pairs_reaching, rank.gpu_pairs)};
  }
  return std::nullopt;
}

}  // namespace

Finding judge_gpus(std::span<const RankFacts> ranks) {
  std::vector<RankDevices> devices;
  for (const RankFacts& rank : ranks) {
    devices.push_back({.host = rank.node,
                       .usable = rank.gpu_usable,
                       .allotted = rank.gpus_allotted,
                       .reason = rank.gpu_reason});
  }
  DeviceChoice choice = DeviceChoice::cpu;
  try {
    // Decides like training, with the same error text.
    choice = decide_device(devices);
  } catch (const Error& error) {
    return {.check = "gpus", .verdict = Verdict::fail, .text = error.what()};
  }
  if (choice == DeviceChoice::cpu) {
    const std::string& reason = ranks.front().gpu_reason;
    return {.check = "gpus",
            .text = fmt::format("none; training computes on processors ({})",
                                reason.substr(0, reason.find(" (")))};
  }
  if (auto missing = find_missing_gpu(ranks)) return *std::move(missing);
  if (auto unreachable = find_unreachable_gpu(ranks)) return *std::move(unreachable);
  const auto [fewest, most_rank] = std::ranges::minmax_element(ranks, {}, &RankFacts::gpus);
  const int least = fewest->gpus;
  const int most = most_rank->gpus;
  return {.check = "gpus",
          .text = fmt::format("{} visible to each rank{}",
                              least == most ? count_text(static_cast<std::size_t>(least), "GPU")
                                            : fmt::format("{} to {} GPUs", least, most),
                              least > 1 ? ", all within reach of each other" : ""),
          .values = {{"gpus_least", least}, {"gpus_most", most}}};
}

std::optional<Finding> judge_locality(std::span<const RankFacts> ranks) {
  using Nic = GpuPlace::Nic;
  struct Group {
    int ranks = 0;
    std::string example = {};  ///< the interfaces of its first rank
  };
  std::map<Nic, Group> groups;
  std::map<std::string, std::size_t> ranks_on;
  for (const RankFacts& rank : ranks) {
    const std::size_t local_rank = ranks_on[rank.node]++;
    // Training takes the GPU with the rank's local index, or the only one.
    const std::size_t gpu = rank.gpu_places.size() == 1 ? 0 : local_rank;
    if (gpu >= rank.gpu_places.size()) continue;
    const GpuPlace& place = rank.gpu_places[gpu];
    if (const auto warning = choose_feeding_cores(place, rank.cores).warning) {
      return Finding{
          .check = "locality",
          .verdict = Verdict::warn,
          .text = fmt::format("rank {} on {} would run {}", rank.rank, rank.node, *warning)};
    }
    Group& group = groups[place.nic];
    if (group.ranks++ == 0) {
      group.example = fmt::format("rank {}: {}", rank.rank, fmt::join(place.nics, " "));
    }
  }
  if (groups.empty()) return std::nullopt;
  std::string nics;
  for (const auto& [nic, where] : {std::pair{Nic::same_switch, "on the GPU's PCIe switch"},
                                   std::pair{Nic::same_cores, "near the same cores"},
                                   std::pair{Nic::far, "elsewhere in the node"}}) {
    const Group& group = groups[nic];
    if (group.ranks == 0) continue;
    nics +=
        fmt::format("{}{} for {} ({})", nics.empty() ? "; nearest network interface " : ", ", where,
                    count_text(static_cast<std::size_t>(group.ranks), "rank"), group.example);
  }
  return Finding{.check = "locality",
                 .text = "each rank may use cores near its GPU" + nics,
                 .values = {{"nics_on_switch", groups[Nic::same_switch].ranks},
                            {"nics_near", groups[Nic::same_cores].ranks},
                            {"nics_far", groups[Nic::far].ranks}}};
}

Finding judge_nccl(const NcclFacts& facts) {
  if (!facts.error.empty()) {
    return {.check = "nccl", .verdict = Verdict::fail, .text = facts.error};
  }
  return {.check = "nccl",
          .text = fmt::format("all-reduce over all GPUs at {} a rank", rate_text(facts.bandwidth)),
          .values = {{"bandwidth", facts.bandwidth}}};
}

}  // namespace lockstep::doctor
