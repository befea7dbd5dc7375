#include "lockstep/compute/device_plan.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"

#include <algorithm>
#include <map>

namespace lockstep::doctor {

Finding judge_gpus(std::span<const RankFacts> ranks) {
  std::vector<RankDevices> devices;
  std::map<std::string, int> ranks_on;
  for (const RankFacts& rank : ranks) {
    devices.push_back({.host = rank.node,
                       .usable = rank.gpu_usable,
                       .allotted = rank.gpus_allotted,
                       .reason = rank.gpu_reason});
    ++ranks_on[rank.node];
  }
  Finding finding{.check = "gpus"};
  DeviceChoice choice = DeviceChoice::cpu;
  try {
    // Decides like training, with the same error text.
    choice = decide_device(devices);
  } catch (const Error& error) {
    return {.check = "gpus", .verdict = Verdict::fail, .text = error.what()};
  }
  if (choice == DeviceChoice::cpu) {
    finding.text =
        fmt::format("none; training computes on processors ({})",
                    ranks.front().gpu_reason.substr(0, ranks.front().gpu_reason.find(" (")));
    return finding;
  }
  int least = ranks.front().gpus;
  int most = least;
  for (const RankFacts& rank : ranks) {
    least = std::min(least, rank.gpus);
    most = std::max(most, rank.gpus);
    const int local = ranks_on[rank.node];
    if (rank.gpus >= local || local == 1) continue;
    finding.verdict = Verdict::warn;
    if (rank.gpus == 1) {
      finding.text = fmt::format(
          "rank {} on {} sees 1 GPU beside {} ranks (--gpus-per-task or --gpu-bind hides the "
          "others', "
          "and NCCL then goes without peer access; or ranks share one GPU, which NCCL refuses); "
          "use "
          "--gpus-per-node={} and neither of them",
          rank.rank, rank.node, local - 1, local);
    } else {
      finding.verdict = Verdict::fail;
      finding.text = fmt::format(
          "{} ranks on {} see {} GPUs (NCCL needs one for each rank); start {} ranks a node, or "
          "train "
          "with --comm mpi",
          local, rank.node, rank.gpus, rank.gpus);
    }
    return finding;
  }
  for (const RankFacts& rank : ranks) {
    if (rank.gpu_pairs_reaching == rank.gpu_pairs) continue;
    finding.verdict = Verdict::warn;
    finding.text = fmt::format(
        "GPUs {} on {} do not reach each other's memory ({} of {} pairs do; NCCL goes through the "
        "host's for the others); see nvidia-smi topo -m, and whether PCIe's access control or a "
        "virtual machine is between them",
        rank.gpus_apart, rank.node, rank.gpu_pairs_reaching, rank.gpu_pairs);
    return finding;
  }
  finding.text = fmt::format("{} visible to each rank{}",
                             least == most ? count_text(static_cast<std::size_t>(least), "GPU")
                                           : fmt::format("{} to {} GPUs", least, most),
                             least > 1 ? ", all within reach of each other" : "");
  finding.values = {{"gpus_least", least}, {"gpus_most", most}};
  return finding;
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
