#include "worker.hpp"

#include "facts_json.hpp"
#include "lockstep/runtime/watch_addresses.hpp"

#include <fmt/format.h>

#include <array>
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

RouteTarget target_from(const nlohmann::json& json) {
  RouteTarget target{.addresses = {},
                     .port = json.at("port").get<int>(),
                     .greeting = json.at("greeting").get<std::string>()};
  for (const auto& address : json.at("addresses")) {
    target.addresses.push_back({.interface = address.at(0).get<std::string>(),
                                .number = address.at(1).get<std::string>()});
  }
  return target;
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

nlohmann::json Worker::listen() {
  std::vector<InterfaceAddress> listened;
  try {
    listened = chosen_addresses(options_.interface);
    const bool is_one = !options_.interface.empty();
    listener_.emplace(fmt::format("lockstep doctor {} {:08x}", node_, std::random_device()()),
                      is_one ? parse_address(listened.front().number, 0) : std::nullopt);
  } catch (const std::exception&) {
    // No such interface, no port or no thread: this node can then be reached only by MPI.
    return {{"port", 0}, {"greeting", ""}, {"addresses", nlohmann::json::array()}};
  }
  nlohmann::json addresses = nlohmann::json::array();
  for (const InterfaceAddress& address : listened) {
    if (!address.loopback) addresses.push_back({address.interface, address.number});
  }
  return {{"port", listener_->port()},
          {"greeting", listener_->greeting()},
          {"addresses", std::move(addresses)}};
}

nlohmann::json Worker::meet(const nlohmann::json& command) {
  const Passage passage = measure_passage(mailbox_, command.at("rank").get<int>(),
                                          std::min(options_.limit, longest_passage));
  nlohmann::json answer{{"latency", passage.latency},
                        {"bandwidth", passage.bandwidth},
                        {"segments", passage.segments},
                        {"error", passage.error},
                        {"routes", nlohmann::json::array()}};
  if (command.contains("target")) {
    answer["routes"] =
        measure_routes(target_from(command.at("target")),
                       Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.limit));
  }
  return answer;
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
  if (what == "clock") return wall_clock();
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
