// Simulates a step on a cluster with SimGrid: replays the plan of `lockstep scale --json --plans`
// with the messages that comm/messages plans. Prints the seconds of a step as JSON.
#include "../../src/comm/messages/message_plan.hpp"

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;
namespace sg = simgrid::s4u;

namespace {

struct Settings {
  int nodes = 1;
  int ranks_per_node = 1;
  double link = 0;        ///< bytes per second of a node, in each direction
  double local_link = 0;  ///< bytes per second of a rank within its node
  double latency = 0;     ///< seconds of a message
  double host_ns = 0;     ///< computation per byte sent and byte received
  int cores = 0;          ///< that all nodes share; 0: each rank has its own
  int steps = 3;
  std::size_t piece = 0;  ///< values of the largest message
  std::size_t part = 0;   ///< values of a part of an all-reduce in two levels
  std::optional<BlockSchedule> schedule;
  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }
};

struct Action {
  enum class Kind { compute, start, wait } kind = Kind::compute;
  double seconds = 0;
  int collective = 0;
  bool reduces = false;
  bool gathers = false;
  enum class Ranks { all, group, replicas } ranks = Ranks::all;
  double bytes = 0;
};

struct Plan {
  std::vector<Action> actions;
  int collectives = 0;
  int shard_group = 1;
};

Plan read_plan(const nlohmann::json& rows, const std::string& shard) {
  for (const auto& row : rows) {
    if (row.at("shard") != shard) continue;
    Plan plan;
    plan.shard_group = row.at("shard_group");
    for (const auto& each : row.at("plan")) {
      Action action;
      if (each.contains("compute")) {
        action.seconds = each["compute"];
      } else if (each.contains("wait")) {
        action.kind = Action::Kind::wait;
        action.collective = each["wait"];
      } else {
        const std::string what = each["collective"];
        const std::string ranks = each["ranks"];
        action = {.kind = Action::Kind::start,
                  .collective = each["start"],
                  .reduces = what != "all-gather",
                  .gathers = what != "reduce-scatter",
                  .ranks = ranks == "group"      ? Action::Ranks::group
                           : ranks == "replicas" ? Action::Ranks::replicas
                                                 : Action::Ranks::all,
                  .bytes = each["bytes"]};
        ++plan.collectives;
      }
      plan.actions.push_back(action);
    }
    return plan;
  }
  throw std::runtime_error("no row with --shard " + shard);
}

/// Where a rank is in the ranks of a collective.
struct Place {
  int node = 0;  ///< index among the set's nodes
  int nodes = 1;
  int local = 0;
  int locals = 1;
  std::vector<int> peers;  ///< ranks with the same `local`, by node
  std::string name;        ///< of the set's ranks on this node
};

Place place_of(int rank, Action::Ranks ranks, const Settings& settings, int shard_group) {
  const int size = ranks == Action::Ranks::all ? settings.ranks() : shard_group;
  const int first = ranks == Action::Ranks::replicas ? rank % size : rank / size * size;
  const int stride = ranks == Action::Ranks::replicas ? size : 1;
  const int count = ranks == Action::Ranks::replicas ? settings.ranks() / size : size;
  Place place;
  std::map<int, int> locals;
  for (int i = 0; i < count; ++i) ++locals[(first + i * stride) / settings.ranks_per_node];
  place.nodes = static_cast<int>(locals.size());
  place.locals = locals.begin()->second;
  const int index = (rank - first) / stride;
  place.node = index / place.locals;
  place.local = index % place.locals;
  for (int node = 0; node < place.nodes; ++node)
    place.peers.push_back(first + (node * place.locals + place.local) * stride);
  place.name = std::to_string(static_cast<int>(ranks)) + ":" + std::to_string(first) + ":" +
               std::to_string(place.node);
  return place;
}

/// What all ranks share.
struct World {
  Settings settings;
  Plan plan;
  std::vector<sg::Host*> hosts;
  sg::Host* cores = nullptr;
  std::map<std::string, sg::BarrierPtr> barriers;
  std::vector<double> ends;  ///< by step
};

class Rank {
 public:
  Rank(World& world, int rank) : world_(world), rank_(rank) {}

  void run() {
    for (int step = 0; step < world_.settings.steps; ++step) {
      done_.assign(static_cast<std::size_t>(world_.plan.collectives), nullptr);
      for (auto& each : done_) each = sg::Semaphore::create(0);
      for (const Action& action : world_.plan.actions) perform(action);
      double& end = world_.ends[static_cast<std::size_t>(step)];
      end = std::max(end, sg::Engine::get_clock());
    }
  }

 private:
  void perform(const Action& action) {
    switch (action.kind) {
      case Action::Kind::compute:
        compute(action.seconds);
        break;
      case Action::Kind::wait:
        wait(action.collective);
        break;
      case Action::Kind::start:
        start(action);
        break;
    }
  }

  void compute(double seconds) {
    if (seconds <= 0) return;
    if (world_.cores == nullptr) {
      sg::this_actor::sleep_for(seconds);
    } else {
      sg::Exec::init()->set_flops_amount(seconds)->set_host(world_.cores)->wait();
    }
  }

  void wait(int collective) {
    const sg::SemaphorePtr& done = done_[static_cast<std::size_t>(collective)];
    done->acquire();
    done->release();
  }

  /// All started collectives exchange messages at the same time.
  void start(const Action& action) {
    std::optional<Place>& place = places_[static_cast<std::size_t>(action.ranks)];
    if (!place) place = place_of(rank_, action.ranks, world_.settings, world_.plan.shard_group);
    sg::Actor::create("collective", sg::this_actor::get_host(), [this, &action, &place] {
      communicate(action, *place);
      done_[static_cast<std::size_t>(action.collective)]->release();
    });
  }

  /// Within the node, everything but the first and last part overlaps what is sent between nodes.
  void communicate(const Action& action, const Place& place) {
    const Settings& settings = world_.settings;
    const double values = action.bytes / 4;
    sg::CommPtr copies;
    double part_seconds = 0;
    if (place.locals > 1) {
      auto& barrier = world_.barriers[place.name + ":" + std::to_string(action.collective)];
      if (barrier == nullptr) barrier = sg::Barrier::create(static_cast<unsigned>(place.locals));
      barrier->wait();
      const double share = static_cast<double>(place.locals - 1) / place.locals;
      const double passes = action.reduces && action.gathers ? 2 : 1;
      sg::Host* host = sg::this_actor::get_host();
      copies = sg::Comm::sendto_async(host, host,
                                      static_cast<std::uint64_t>(passes * share * action.bytes));
      const double part = std::min(values, static_cast<double>(settings.part)) * 4;
      part_seconds = share * (passes == 2 ? part : action.bytes) / settings.local_link;
      if (action.reduces) sg::this_actor::sleep_for(part_seconds);
    }
    if (place.nodes > 1) {
      const auto total = static_cast<std::size_t>(std::ceil(values / place.locals));
      const auto nodes = static_cast<std::size_t>(place.nodes);
      exchange(plan_messages({.schedule = settings.schedule.value_or(choose_schedule(place.nodes)),
                              .rank = place.node,
                              .ranks = place.nodes,
                              .count = (total + nodes - 1) / nodes,
                              .total = total,
                              .piece = settings.piece,
                              .reduces = action.reduces,
                              .gathers = action.gathers}),
               place, action.collective);
    }
    if (copies != nullptr) {
      if (action.gathers) sg::this_actor::sleep_for(part_seconds);
      copies->wait();
    }
  }

  void exchange(const MessagePlan& plan, const Place& place, int collective) {
    constexpr std::size_t sends_at_once = 2;
    constexpr std::size_t receives_at_once = 32;
    std::vector<sg::CommPtr> pending;
    std::vector<std::size_t> receive_of;  // by entry of pending: index of the receive, or sent
    constexpr auto sent = static_cast<std::size_t>(-1);
    std::vector<void*> payloads(plan.receives.size());
    std::vector<bool> received(plan.receives.size());
    std::size_t next_send = 0, next_receive = 0, sending = 0, receiving = 0, in_order = 0;
    while (next_send < plan.sends.size() || in_order < plan.receives.size() || sending > 0) {
      for (; next_receive < plan.receives.size() && receiving < receives_at_once; ++next_receive) {
        pending.push_back(
            mailbox(collective, place.peers[index(plan.receives[next_receive])], rank_)
                ->get_async<void>(reinterpret_cast<void**>(&payloads[next_receive])));
        receive_of.push_back(next_receive);
        ++receiving;
      }
      for (; next_send < plan.sends.size() && sending < sends_at_once &&
             plan.sends[next_send].after_receives <= in_order;
           ++next_send) {
        const Message& message = plan.sends[next_send];
        pending.push_back(mailbox(collective, rank_, place.peers[index(message)])
                              ->put_async(&world_, message.count * 4));
        receive_of.push_back(sent);
        ++sending;
      }
      if (pending.empty()) continue;
      const auto done = static_cast<std::size_t>(sg::Comm::wait_any(pending));
      const std::size_t receive = receive_of[done];
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(done));
      receive_of.erase(receive_of.begin() + static_cast<std::ptrdiff_t>(done));
      if (receive == sent) {
        --sending;
        continue;
      }
      --receiving;
      compute(1e-9 * world_.settings.host_ns * static_cast<double>(plan.receives[receive].count) *
              4);
      received[receive] = true;
      while (in_order < received.size() && received[in_order]) ++in_order;
    }
  }

  static std::size_t index(const Message& message) {
    return static_cast<std::size_t>(message.peer);
  }
  sg::Mailbox* mailbox(int collective, int from, int to) {
    sg::Mailbox*& found = mailboxes_[{collective, from, to}];
    if (found == nullptr) {
      found = sg::Mailbox::by_name(std::to_string(collective) + ":" + std::to_string(from) + ":" +
                                   std::to_string(to));
    }
    return found;
  }

  World& world_;
  int rank_;
  std::array<std::optional<Place>, 3> places_;  ///< by Action::Ranks
  std::vector<sg::SemaphorePtr> done_;
  std::map<std::array<int, 3>, sg::Mailbox*> mailboxes_;
};

void build(World& world) {
  const Settings& settings = world.settings;
  auto* zone = sg::create_star_zone("cluster");
  for (int node = 0; node < settings.nodes; ++node) {
    const std::string name = std::to_string(node);
    auto* host = zone->create_host("node" + name, 1.0);
    auto* link = zone->create_split_duplex_link("link" + name, settings.link)
                     ->set_latency(settings.latency / 2)
                     ->seal();
    auto* memory = zone->create_link("memory" + name, settings.local_link)
                       ->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)
                       ->seal();
    host->seal();
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, sg::LinkInRoute::Direction::UP}}, true);
    zone->add_route(host->get_netpoint(), host->get_netpoint(), nullptr, nullptr,
                    std::vector<sg::LinkInRoute>{sg::LinkInRoute(memory)}, true);
    world.hosts.push_back(host);
  }
  if (settings.cores > 0) {
    world.cores = zone->create_host("cores", 1.0)->set_core_count(settings.cores);
    world.cores->seal();
  }
  zone->seal();
}

/// What the command line gives.
struct Arguments {
  std::string file;
  std::string shard;
  std::string schedule;
  double link_mb = 0;
  double local_mb = 0;
  double piece_kib = 0;
};

namespace po = boost::program_options;

po::options_description describe(Arguments& arguments, Settings& settings) {
  po::options_description options("simulate_step PLANS.json [options]");
  auto add = options.add_options();
  add("help", "show the options");
  add("plans", po::value(&arguments.file)->required(), "of lockstep scale --json --plans");
  add("shard", po::value(&arguments.shard)->default_value("none"), "row of the plans");
  add("link", po::value(&arguments.link_mb)->required(), "MB/s of a node's links");
  add("local-link", po::value(&arguments.local_mb)->default_value(450000),
      "MB/s of a rank in its node");
  add("latency", po::value(&settings.latency)->default_value(5e-6), "seconds of a message");
  add("host-ns-per-byte", po::value(&settings.host_ns)->default_value(0), "as in lockstep scale");
  add("cores", po::value(&settings.cores)->default_value(0), "that all ranks share; 0: own ones");
  add("schedule", po::value(&arguments.schedule)->default_value("auto"), "auto, halving or ring");
  add("piece-kib", po::value(&arguments.piece_kib)->default_value(60), "largest message");
  add("steps", po::value(&settings.steps)->default_value(3), "the first is not counted");
  return options;
}

/// False if only help was asked for.
bool read(int argc, char** argv, World& world) {
  Arguments arguments;
  Settings& settings = world.settings;
  const po::options_description options = describe(arguments, settings);
  po::positional_options_description positional;
  positional.add("plans", 1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(options).positional(positional).run(),
            values);
  if (values.contains("help")) {
    std::cout << options;
    return false;
  }
  po::notify(values);
  const auto json = nlohmann::json::parse(std::ifstream(arguments.file));
  settings.nodes = json.at("nodes");
  settings.ranks_per_node = json.at("ranks_per_node");
  settings.link = 1e6 * arguments.link_mb;
  settings.local_link = 1e6 * arguments.local_mb;
  settings.piece = static_cast<std::size_t>(arguments.piece_kib * 256);
  settings.part = (std::size_t{16} << 20) / sizeof(float);
  if (arguments.schedule == "ring") settings.schedule = BlockSchedule::ring;
  if (arguments.schedule == "halving") settings.schedule = BlockSchedule::halving;
  world.plan = read_plan(json.at("rows"), arguments.shard);
  return true;
}

/// Seconds of a step.
double simulate(const sg::Engine& engine, World& world) {
  const Settings& settings = world.settings;
  build(world);
  world.ends.resize(static_cast<std::size_t>(settings.steps));
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < settings.ranks(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(world, rank));
    sg::Actor::create("rank", world.hosts[static_cast<std::size_t>(rank / settings.ranks_per_node)],
                      [&ranks, rank] { ranks[static_cast<std::size_t>(rank)]->run(); });
  }
  engine.run();
  return settings.steps > 1 ? (world.ends.back() - world.ends.front()) / (settings.steps - 1)
                            : world.ends.back();
}

}  // namespace

int main(int argc, char** argv) {
  const sg::Engine engine(&argc, argv);
  for (const char* setting : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0",
                              "network/bandwidth-factor:1", "network/latency-factor:1"})
    sg::Engine::set_config(setting);
  World world;
  try {
    if (!read(argc, argv, world)) return 0;
  } catch (const std::exception& error) {
    std::cerr << "simulate_step: error: " << error.what() << "\n";
    return 64;
  }
  std::cout << nlohmann::ordered_json{{"simulated", true},
                                      {"step_seconds", simulate(engine, world)}}
            << "\n";
  return 0;
}
