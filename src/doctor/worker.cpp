#include "worker.hpp"

#include "facts_json.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/runtime/watch_addresses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <random>

namespace lockstep::doctor {
namespace {

/// Maximum time for the messages of one pair; any network usable for a run is faster.
constexpr std::chrono::duration<double> longest_passage = std::chrono::seconds(20);

std::string node_name(const LaunchFacts& launch) {
  if (!launch.node.empty()) return launch.node;
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  return {name.data(), static_cast<std::size_t>(length)};
}

/// Those of `interface`, else all. Error(usage) if this host has none.
std::vector<InterfaceAddress> chosen_addresses(const std::string& interface) {
  if (interface.empty()) return interface_addresses();
  return {watch::choose_address(interface, watch::all_addresses())};
}

}  // namespace

Worker::Worker(Mailbox& mailbox, const ExaminationOptions& options)
    : mailbox_(mailbox), options_(options), node_(node_name(options.launch)) {}

RankFacts Worker::describe() const {
  RankFacts facts = measure_rank(mailbox_.rank(), node_);
  try {
    static_cast<void>(chosen_addresses(options_.interface));
  } catch (const std::exception& error) {
    facts.interface_error = error.what();
  }
  return facts;
}

RouteTarget Worker::listen() {
  try {
    const auto listened = chosen_addresses(options_.interface);
    const bool is_one = !options_.interface.empty();
    listener_.emplace(fmt::format("lockstep doctor {} {:08x}", node_, std::random_device()()),
                      is_one ? parse_address(listened.front().number, 0) : std::nullopt);
    RouteTarget target{.port = listener_->port(), .greeting = listener_->greeting()};
    std::ranges::copy_if(listened, std::back_inserter(target.addresses),
                         std::not_fn(&InterfaceAddress::loopback));
    return target;
  } catch (const std::exception&) {
    return {};  // no such interface, no port or no thread: MPI alone can reach this node
  }
}

Passage Worker::meet(const nlohmann::json& command) {
  Passage passage = measure_passage(mailbox_, command.at("rank").get<int>(),
                                    std::min(options_.limit, longest_passage));
  if (command.contains("target")) {
    passage.routes =
        measure_routes(command.at("target").get<RouteTarget>(),
                       Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.limit));
  }
  return passage;
}

nlohmann::json Worker::open_gpu(const nlohmann::json& command) {
  try {
    gpu_ = std::make_unique<GpuProbe>(command.at("local_rank").get<int>(),
                                      command.at("local_size").get<int>());
    return {{"uuid", gpu_->uuid()}, {"error", ""}};
  } catch (const std::exception& error) {
    return {{"uuid", ""}, {"error", error.what()}};
  }
}

nlohmann::json Worker::reduce() {
  try {
    return {{"bandwidth", gpu_->measure(options_.limit)}, {"error", ""}};
  } catch (const std::exception& error) {
    // Leaked: freeing its memory would wait for the GPU, which may hang.
    static_cast<void>(gpu_.release());
    return {{"bandwidth", 0.0}, {"error", error.what()}};
  }
}

nlohmann::json Worker::perform(const nlohmann::json& command) {
  const std::string what = command.at("do").get<std::string>();
  if (what == "describe") return describe();
  if (what == "listen") return listen();
  if (what == "meet") return meet(command);
  if (what == "clock") return unix_time();
  if (what == "data") {
    return measure_data(options_.data, node_, command.at("number").get<int>());
  }
  if (what == "run-dir") {
    return look_into_run_directory(command.at("path").get<std::string>(), node_);
  }
  if (what == "gpu") return open_gpu(command);
  if (what == "nccl") return reduce();
  return {{"error", fmt::format("'{}' is no command", what)}};
}

}  // namespace lockstep::doctor
