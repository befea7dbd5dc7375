#include "coordinator.hpp"
#include "facts_json.hpp"

#include <algorithm>
#include <future>
#include <iterator>
#include <thread>

namespace lockstep::doctor {
namespace {

/// Runs `work` on a thread and returns its result; nullopt after the limit, since a file system may
/// hang. The thread is detached, and the process exits without waiting for it.
template <typename Result>
std::optional<Result> within(std::chrono::duration<double> limit, std::function<Result()> work) {
  std::packaged_task<Result()> task(std::move(work));
  std::future<Result> result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace

std::vector<DataFacts> Coordinator::read_data(const std::vector<int>& leaders) {
  const std::string phase = "--data " + options_.data;
  std::vector<DataFacts> all;
  std::vector<int> others;
  for (const int leader : leaders) {
    if (leader != 0) {
      others.push_back(leader);
      continue;
    }
    // Rank 0's own check runs with a limit, so that it cannot hang rank 0.
    const std::string node = self_.node();
    auto own = within<DataFacts>(options_.limit, [directory = options_.data, node] {
      return measure_data(directory, node, 0);
    });
    if (own) {
      all.push_back(*std::move(own));
      continue;
    }
    silent_.push_back({.rank = 0, .node = node, .phase = phase, .seconds = options_.limit.count()});
    return all;
  }
  const auto command = [&](int leader) {
    return nlohmann::json{{"do", "data"}, {"number", number_of(leader)}};
  };
  for (const auto& [rank, answer] : ask(others, {.phase = phase, .command = command})) {
    all.push_back(answer.get<DataFacts>());
  }
  return all;
}

void Coordinator::examine_data() {
  if (options_.data.empty()) return;
  std::vector<DataFacts> all = read_data(leaders_);
  if (is_silent(0)) return;
  for (std::size_t i = 1; i < measurements_to_find; ++i) {
    std::vector<int> slow;
    for (const std::string& node : slow_readers(all)) {
      slow.push_back(
          leaders_[static_cast<std::size_t>(std::ranges::find(nodes_, node) - nodes_.begin())]);
    }
    for (DataFacts& again : read_data(slow)) {
      DataFacts& facts = *std::ranges::find(all, again.node, &DataFacts::node);
      facts.error = std::move(again.error);
      std::ranges::move(again.reads, std::back_inserter(facts.reads));
    }
  }
  findings_.push_back(judge_data(options_.data, all));
}

void Coordinator::examine_run_directory() {
  if (options_.run_dir.empty()) return;
  const std::string phase = "--run-dir " + options_.run_dir;
  const auto limit = measurements_to_find * options_.limit;  // of slow renames
  const auto probe = within<std::shared_ptr<RunDirectoryProbe>>(
      limit, [run_dir = options_.run_dir] { return std::make_shared<RunDirectoryProbe>(run_dir); });
  if (!probe) {
    silent_.push_back({.rank = 0, .node = self_.node(), .phase = phase, .seconds = limit.count()});
    return;
  }
  std::vector<SharedDirectoryFacts> others;
  if ((*probe)->facts().error.empty()) {
    const std::vector<int> leaders(leaders_.begin() + 1, leaders_.end());
    for (const auto& [rank, answer] :
         ask(leaders, {.phase = phase,
                      .command =
                           [&](int) {
                             return nlohmann::json{{"do", "run-dir"}, {"path", (*probe)->path()}};
                           },
                      .limits = 1 + longest_look / options_.limit})) {
      others.push_back(answer.get<SharedDirectoryFacts>());
    }
  }
  findings_.push_back(judge_run_directory((*probe)->facts(), others));
  if ((*probe)->path().empty()) return;
  findings_.push_back(judge_space((*probe)->measure_space(
      {.model = options_.model, .checkpoint = options_.checkpoint_bytes, .kept = options_.kept})));
}

}  // namespace lockstep::doctor
