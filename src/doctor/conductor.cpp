#include "conductor.hpp"

#include "facts_json.hpp"
#include "rounds.hpp"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>

namespace lockstep::doctor {
namespace {

/// "Open MPI v4.1.4"
std::string library_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

/// The result of `work`, or nothing where it takes longer: a file system that hangs must not hang
/// its examiner. The thread is then left behind, and the process ends without waiting for it.
template <typename Result>
std::optional<Result> within(std::chrono::duration<double> limit, std::function<Result()> work) {
  std::packaged_task<Result()> task(std::move(work));
  std::future<Result> result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace

Conductor::Conductor(Post& post, Worker& self, const ExaminationOptions& options)
    : post_(post), self_(self), options_(options) {}

bool Conductor::is_silent(int rank) const {
  return std::any_of(silent_.begin(), silent_.end(),
                     [&](const SilentRank& one) { return one.rank == rank; });
}

Conductor::Answers Conductor::ask(const std::vector<int>& ranks, const Question& question) {
  Answers answers;
  std::vector<int> asked;
  for (const int rank : ranks) {
    if (rank == 0 || is_silent(rank)) continue;
    post_.send(rank, command_tag, to_text(question.command(rank)));
    asked.push_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), 0) != ranks.end()) {
    answers[0] = self_.perform(question.command(0));
  }
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.limit * question.limits);
  for (const int rank : asked) {
    const auto text = post_.receive(rank, answer_tag, deadline);
    if (text) {
      answers[rank] = nlohmann::json::parse(*text);
      continue;
    }
    const int node = node_of_.empty() ? -1 : node_of_[static_cast<std::size_t>(rank)];
    silent_.push_back({.rank = rank,
                       .node = node < 0 ? "" : nodes_[static_cast<std::size_t>(node)],
                       .phase = question.phase});
  }
  return answers;
}

void Conductor::describe() {
  std::vector<int> everyone(static_cast<std::size_t>(post_.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const Answers answers = ask(everyone, {.phase = "the first message", .command = [](int) {
                                           return nlohmann::json{{"do", "describe"}};
                                         }});
  std::vector<int> nodes(everyone.size(), -1);
  for (const auto& [rank, answer] : answers) {
    ranks_.push_back(answer.get<RankFacts>());
    const std::string& name = ranks_.back().node;
    const auto known = std::find(nodes_.begin(), nodes_.end(), name);
    nodes[static_cast<std::size_t>(rank)] = static_cast<int>(known - nodes_.begin());
    if (known != nodes_.end()) continue;
    nodes_.push_back(name);
    leaders_.push_back(rank);
  }
  node_of_ = std::move(nodes);
}

void Conductor::examine_neighbours() {
  // A rank that does not answer would cost its neighbours the limit each, and tell nothing new.
  if (!all_answered()) return;
  std::vector<int> everyone(node_of_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const Answers answers =
      ask(everyone, {.phase = "the messages between neighbours",
                     .command =
                         [&](int) {
                           return nlohmann::json{{"do", "neighbours"}, {"node_of", node_of_}};
                         },
                     .limits = 4});
  std::vector<LinkFacts> links;
  for (const auto& [rank, answer] : answers) {
    for (const auto& link : answer) links.push_back(link.get<LinkFacts>());
  }
  findings_.push_back(judge_neighbours(links));
}

std::vector<NodePairFacts> Conductor::meet(const Round& round, const Answers& listening) {
  const auto number_of = [&](int rank) { return node_of_[static_cast<std::size_t>(rank)]; };
  const auto partner = [&](int rank) -> int {
    const auto other = round[static_cast<std::size_t>(number_of(rank))];
    return other ? leaders_[static_cast<std::size_t>(*other)] : -1;
  };
  std::vector<int> playing;
  for (const int rank : leaders_) {
    const int other = partner(rank);
    if (other >= 0 && !is_silent(rank) && !is_silent(other)) playing.push_back(rank);
  }
  const auto command = [&](int rank) {
    return nlohmann::json{
        {"do", "meet"}, {"rank", partner(rank)}, {"target", listening.at(partner(rank))}};
  };
  const Answers answers =
      ask(playing, {.phase = "the messages between nodes", .command = command, .limits = 3});
  std::vector<NodePairFacts> pairs;
  for (const auto& [rank, answer] : answers) {
    const auto other = answers.find(partner(rank));
    if (other == answers.end() || number_of(rank) > number_of(other->first)) continue;
    NodePairFacts pair{.first = number_of(rank),
                       .second = number_of(other->first),
                       .latency = answer.at("latency").get<double>(),
                       .bandwidth = answer.at("bandwidth").get<double>(),
                       .error = answer.at("error").get<std::string>(),
                       .routes = answer.at("routes").get<std::vector<RouteFacts>>(),
                       .back = other->second.at("routes").get<std::vector<RouteFacts>>()};
    if (pair.error.empty()) pair.error = other->second.at("error").get<std::string>();
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

void Conductor::examine_nodes() {
  std::vector<NodePairFacts> pairs;
  if (nodes_.size() > 1) {
    const Answers listening = ask(leaders_, {.phase = "opening a port", .command = [](int) {
                                               return nlohmann::json{{"do", "listen"}};
                                             }});
    for (const Round& round : plan_rounds(static_cast<int>(nodes_.size()))) {
      for (NodePairFacts& pair : meet(round, listening)) pairs.push_back(std::move(pair));
    }
    // A pair is called slow only where it is so again and again: a core may have been busy.
    constexpr int second_looks = 6;
    for (int i = 0; i < second_looks; ++i) {
      NodePairFacts* slow = slow_pair(pairs);
      if (slow == nullptr) break;
      Round round(nodes_.size());
      round[static_cast<std::size_t>(slow->first)] = slow->second;
      round[static_cast<std::size_t>(slow->second)] = slow->first;
      for (const NodePairFacts& again : meet(round, listening)) {
        slow->bandwidth = std::max(slow->bandwidth, again.bandwidth);
        slow->latency = std::min(slow->latency, again.latency);
      }
    }
  }
  findings_.push_back(judge_nodes(nodes_, pairs));
}

void Conductor::examine_clocks() {
  constexpr int questions = 8;
  std::vector<ClockFacts> clocks;
  for (const int leader : leaders_) {
    if (leader == 0) continue;
    ClockFacts best{
        .node = nodes_[static_cast<std::size_t>(node_of_[static_cast<std::size_t>(leader)])],
        .uncertainty = 1e9};
    for (int i = 0; i < questions && !is_silent(leader); ++i) {
      const double before = wall_clock();
      const auto begin = Clock::now();
      const Answers answers = ask({leader}, {.phase = "the clocks", .command = [](int) {
                                               return nlohmann::json{{"do", "clock"}};
                                             }});
      const double half = std::chrono::duration<double>(Clock::now() - begin).count() / 2;
      if (answers.empty() || half >= best.uncertainty) continue;
      best.offset = answers.at(leader).get<double>() - before - half;
      best.uncertainty = half;
    }
    if (!is_silent(leader)) clocks.push_back(best);
  }
  findings_.push_back(judge_clocks(clocks));
}

void Conductor::examine_nccl() {
  const bool all_have_one = std::all_of(ranks_.begin(), ranks_.end(),
                                        [](const RankFacts& rank) { return rank.gpu_usable; });
  // Its start is collective: where a rank is out of reach it would hang.
  const bool network_is_well =
      std::none_of(findings_.begin(), findings_.end(), [](const Finding& finding) {
        return (finding.check == "nodes" || finding.check == "neighbours") &&
               finding.verdict == Verdict::fail;
      });
  if (!all_have_one || !network_is_well || !all_answered()) return;
  std::vector<int> everyone(node_of_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const Answers answers = ask(
      everyone, {.phase = "NCCL",
                 .command =
                     [&](int rank) {
                       const auto place = node_of_.begin() + rank;
                       return nlohmann::json{
                           {"do", "nccl"},
                           {"local_rank", std::count(node_of_.begin(), place, *place)},
                           {"local_size", std::count(node_of_.begin(), node_of_.end(), *place)}};
                     },
                 .limits = 4});
  NcclFacts facts;
  for (const auto& [rank, answer] : answers) {
    const double bandwidth = answer.at("bandwidth").get<double>();
    facts.bandwidth = rank == 0 ? bandwidth : std::min(facts.bandwidth, bandwidth);
    if (facts.error.empty()) facts.error = answer.at("error").get<std::string>();
  }
  findings_.push_back(judge_nccl(facts));
}

void Conductor::examine_data() {
  if (options_.data.empty()) return;
  // Rank 0's own look must not hang it, so it is a question to itself with a limit.
  const std::string node = self_.node();
  auto own = within<DataFacts>(options_.limit, [directory = options_.data, node] {
    return measure_data(directory, node, 0);
  });
  if (!own) {
    silent_.push_back({.rank = 0, .node = node, .phase = "--data " + options_.data});
    return;
  }
  std::vector<DataFacts> all{*own};
  std::vector<int> others(leaders_.begin() + 1, leaders_.end());
  for (const auto& [rank, answer] :
       ask(others, {.phase = "--data " + options_.data, .command = [&](int leader) {
                      return nlohmann::json{{"do", "data"},
                                            {"number", node_of_[static_cast<std::size_t>(leader)]}};
                    }})) {
    all.push_back(answer.get<DataFacts>());
  }
  findings_.push_back(judge_data(options_.data, all));
}

void Conductor::examine_run_directory() {
  if (options_.run_dir.empty()) return;
  const std::string phase = "--run-dir " + options_.run_dir;
  const auto probe = within<std::shared_ptr<RunDirectoryProbe>>(
      options_.limit,
      [run_dir = options_.run_dir] { return std::make_shared<RunDirectoryProbe>(run_dir); });
  if (!probe) {
    silent_.push_back({.rank = 0, .node = self_.node(), .phase = phase});
    return;
  }
  std::vector<SharedDirectoryFacts> others;
  if ((*probe)->facts().error.empty()) {
    const std::vector<int> leaders(leaders_.begin() + 1, leaders_.end());
    for (const auto& [rank, answer] :
         ask(leaders, {.phase = phase, .command = [&](int) {
                         return nlohmann::json{{"do", "run-dir"}, {"path", (*probe)->path()}};
                       }})) {
      others.push_back(answer.get<SharedDirectoryFacts>());
    }
  }
  findings_.push_back(judge_run_directory((*probe)->facts(), others));
  if ((*probe)->path().empty()) return;
  findings_.push_back(judge_space((*probe)->measure_space(
      {.model = options_.model, .checkpoint = options_.checkpoint_bytes, .kept = options_.kept})));
}

std::vector<Finding> Conductor::examine() {
  describe();
  findings_.push_back(judge_ranks({.size = post_.size(),
                                   .nodes = static_cast<int>(nodes_.size()),
                                   .library = library_name(),
                                   .start_seconds = options_.start_seconds,
                                   .launch = options_.launch}));
  findings_.push_back(judge_cores(ranks_));
  findings_.push_back(judge_gpus(ranks_));
  examine_neighbours();
  examine_nodes();
  examine_clocks();
  examine_nccl();
  examine_data();
  examine_run_directory();
  if (!silent_.empty()) findings_.push_back(judge_answers(silent_, options_.limit.count()));
  return std::move(findings_);
}

}  // namespace lockstep::doctor
