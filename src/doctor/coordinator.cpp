#include "coordinator.hpp"

#include "facts_json.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/runtime/mpi_environment.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace lockstep::doctor {

Coordinator::Coordinator(Mailbox& mailbox, Worker& self, const ExaminationOptions& options)
    : mailbox_(mailbox), self_(self), options_(options) {}

bool Coordinator::is_silent(int rank) const {
  return std::ranges::find(silent_, rank, &SilentRank::rank) != silent_.end();
}

bool Coordinator::all_reached() const {
  return silent_.empty() &&
         std::none_of(findings_.begin(), findings_.end(), [](const Finding& finding) {
           return (finding.check == "nodes" || finding.check == "neighbours") &&
                  finding.verdict == Verdict::fail;
         });
}

Coordinator::Answers Coordinator::ask(const std::vector<int>& ranks, const Question& question) {
  Answers answers;
  std::vector<int> asked;
  const auto begin = Clock::now();
  for (const int rank : ranks) {
    if (rank == 0 || is_silent(rank)) continue;
    send_json(mailbox_, rank, command_tag, question.command(rank));
    asked.push_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), 0) != ranks.end()) {
    answers[0] = self_.perform(question.command(0));
  }
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.limit * question.limits);
  for (const int rank : asked) {
    const auto received = mailbox_.receive(rank, answer_tag, deadline);
    if (received) {
      answers[rank] = json_in(*received);
      continue;
    }
    const int node = node_of_.empty() ? -1 : number_of(rank);
    silent_.push_back({.rank = rank,
                       .node = node < 0 ? "" : nodes_[static_cast<std::size_t>(node)],
                       .phase = question.phase,
                       .seconds = std::chrono::duration<double>(Clock::now() - begin).count()});
  }
  return answers;
}

std::vector<int> Coordinator::everyone() const {
  std::vector<int> ranks(static_cast<std::size_t>(mailbox_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int Coordinator::number_of(int rank) const {
  return node_of_[static_cast<std::size_t>(rank)];
}

void Coordinator::describe() {
  const Answers answers =
      ask(everyone(), {.phase = "the first message", .command = same("describe")});
  std::vector<int> nodes(static_cast<std::size_t>(mailbox_.size()), -1);
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

std::vector<NodePairFacts> Coordinator::meet(const Encounter& encounter) {
  std::vector<int> playing;
  for (const int rank : encounter.ranks) {
    const int other = encounter.partner(rank);
    if (other >= 0 && !is_silent(rank) && !is_silent(other)) playing.push_back(rank);
  }
  const auto command = [&](int rank) {
    const int other = encounter.partner(rank);
    nlohmann::json json{{"do", "meet"}, {"rank", other}};
    const auto target = encounter.listening.find(other);
    if (target != encounter.listening.end()) json["target"] = target->second;
    return json;
  };
  const Answers answers = ask(playing, {.phase = encounter.phase, .command = command, .limits = 3});
  std::vector<NodePairFacts> pairs;
  for (const auto& [rank, answer] : answers) {
    const auto other = answers.find(encounter.partner(rank));
    if (other == answers.end() || rank > other->first) continue;
    auto there = answer.get<Passage>();
    auto back = other->second.get<Passage>();
    pairs.push_back(
        {.first = rank,
         .second = other->first,
         .latency = there.latency,
         .bandwidth = there.bandwidth,
         .segments = {.sent = there.segments.sent + back.segments.sent,
                      .retransmitted = there.segments.retransmitted + back.segments.retransmitted},
         .error = there.error.empty() ? std::move(back.error) : std::move(there.error),
         .routes = std::move(there.routes),
         .back = std::move(back.routes)});
  }
  return pairs;
}

void Coordinator::examine_neighbours() {
  // With a silent rank, each of its neighbours would wait for the limit and learn nothing new.
  if (!silent_.empty()) return;
  std::vector<LinkFacts> links;
  const std::vector<int> all = everyone();
  // One round after another, so that a rank that times out in one is not late for the next.
  for (const Round& round : plan_ring(mailbox_.size())) {
    for (NodePairFacts& pair :
         meet({.ranks = all,
         .partner = [&](int rank) { return round[static_cast<std::size_t>(rank)].value_or(-1); },
         .phase = "the messages between neighbours",
         .listening = {}})) {
      links.push_back({.first = pair.first,
                       .second = pair.second,
                       .same_node = number_of(pair.first) == number_of(pair.second),
                       .latency = pair.latency,
                       .bandwidth = pair.bandwidth,
                       .error = std::move(pair.error)});
    }
  }
  findings_.push_back(judge_neighbours(links));
}

std::vector<NodePairFacts> Coordinator::meet_nodes(const Round& round, const Answers& listening) {
  const auto partner = [&](int rank) {
    const auto other = round[static_cast<std::size_t>(number_of(rank))];
    return other ? leaders_[static_cast<std::size_t>(*other)] : -1;
  };
  auto pairs = meet({.ranks = leaders_,
                     .partner = partner,
                     .phase = "the messages between nodes",
                     .listening = listening});
  for (NodePairFacts& pair : pairs) {
    pair.first = number_of(pair.first);
    pair.second = number_of(pair.second);
  }
  return pairs;
}

void Coordinator::examine_nodes() {
  std::vector<NodePairFacts> pairs;
  if (nodes_.size() > 1) {
    const Answers listening = ask(leaders_, {.phase = "opening a port", .command = same("listen")});
    for (const Round& round : plan_rounds(static_cast<int>(nodes_.size()))) {
      for (NodePairFacts& pair : meet_nodes(round, listening)) pairs.push_back(std::move(pair));
    }
    // A core may have been busy.
    while (NodePairFacts* suspect = suspect_pair(nodes_, pairs)) {
      Round round(nodes_.size());
      round[static_cast<std::size_t>(suspect->first)] = suspect->second;
      round[static_cast<std::size_t>(suspect->second)] = suspect->first;
      const std::vector<NodePairFacts> again = meet_nodes(round, /*listening=*/{});
      if (again.empty()) break;  // one of both is silent
      add_measurement(*suspect, again.front());
    }
  }
  findings_.push_back(judge_nodes(nodes_, pairs));
}

void Coordinator::examine_clocks() {
  constexpr int questions = 8;
  std::vector<ClockFacts> clocks;
  for (const int leader : leaders_) {
    if (leader == 0) continue;
    ClockFacts best{
        .node = nodes_[static_cast<std::size_t>(node_of_[static_cast<std::size_t>(leader)])],
        .uncertainty = 1e9};
    for (int i = 0; i < questions && !is_silent(leader); ++i) {
      const double before = unix_time();
      const auto begin = Clock::now();
      const Answers answers = ask({leader}, {.phase = "the clocks", .command = same("clock")});
      const double half = std::chrono::duration<double>(Clock::now() - begin).count() / 2;
      if (answers.empty() || half >= best.uncertainty) continue;
      best.offset = answers.at(leader).get<double>() - before - half;
      best.uncertainty = half;
    }
    if (!is_silent(leader)) clocks.push_back(best);
  }
  findings_.push_back(judge_clocks(clocks));
}

void Coordinator::examine() {
  describe();
  findings_.push_back(judge_ranks({.size = mailbox_.size(),
                                   .nodes = static_cast<int>(nodes_.size()),
                                   .library = mpi_library(),
                                   .start_seconds = options_.start_seconds,
                                   .launch = options_.launch}));
  findings_.push_back(judge_cores(ranks_));
  findings_.push_back(judge_gpus(ranks_));
  if (auto locality = judge_locality(ranks_)) findings_.push_back(*std::move(locality));
  if (!options_.interface.empty()) {
    findings_.push_back(judge_interface(ranks_, options_.interface));
  }
  examine_neighbours();
  examine_nodes();
  examine_clocks();
  examine_nccl();
  examine_data();
  examine_run_directory();
  if (!silent_.empty()) findings_.push_back(judge_answers(silent_));
}

}  // namespace lockstep::doctor
