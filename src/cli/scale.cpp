// What a step would take on a cluster: prints what parallel/step_prediction predicts.
#include "command.hpp"
#include "link_options.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/step_prediction.hpp"
#include "model_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

/// With fewer ranks, smaller groups save little.
constexpr int fewest_ranks_for_hybrid = 64;
/// The part of a step's time that is worth a change of --shard.
constexpr double worthwhile = 0.1;

struct ScaleArguments {
  Config config = described_config(256);
  std::int64_t nodes = 0;
  std::int64_t ranks_per_node = 1;
  LinkOptions links;
  double images_per_second = 0;
  bool json = false;
  bool plans = false;
};

void add_cluster_options(OptionTable<ScaleArguments>& table) {
  table.group("Cluster")
      .add(&ScaleArguments::nodes, "nodes", "number of nodes", {.min = 1, .max = 100'000})
      .add(&ScaleArguments::ranks_per_node, "gpus-per-node",
           "ranks of a node: its GPUs, or CPU ranks", {.min = 1, .max = 1000});
  add_link_options(table);
}

OptionTable<ScaleArguments> scale_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<ScaleArguments> table;
  add_cluster_options(table);
  table.group("Run")
      .add(&ScaleArguments::images_per_second, "images-per-second",
           "rate of one rank alone with this batch size: measure it with lockstep bench "
           "step on one GPU",
           {.unit = "images/s", .min = 0, .max = 1e9})
      .add(&ScaleArguments::config, train, described_options())
      .add(&ScaleArguments::config, train,
           {{.name = "batch-size", .help = "samples per rank and micro-step", .min = 1},
            {.name = "accumulate"},
            {.name = "precision"},
            {.name = "batch-norm"},
            {.name = "bucket-mb"},
            {.name = "shard-unit"},
            {.name = "shard-group"},
            {.name = "param-dtype"},
            {.name = "reduce-dtype",
             .help = "data type of the gradient reduction, like FSDP's reduce_dtype; auto: fp32"}});
  table.group("Result")
      .add(&ScaleArguments::json, "json", "print one JSON object")
      .add(&ScaleArguments::plans, "plans", "add to it what a rank computes, starts and waits for");
  return table;
}

void print_help() {
  print_out(
      "usage: lockstep scale --model NAME --nodes N --link RATE --images-per-second R [options]\n\n"
      "Predicts the time of a step on a cluster, from the buckets and units that a run would use\n"
      "and the time that its messages take. Nothing is measured: see docs/scaling.md.\n\n"
      "models: {}\n{}",
      fmt::join(model_names(), " "), Lines{scale_options().help()});
}

/// Completes the shard group and checks what a prediction needs.
ScaleArguments check(ScaleArguments arguments) {
  Config& config = arguments.config;
  const auto need = [](bool given, const char* option, const char* why) {
    if (!given)
      fail(ExitStatus::usage, "--{} is missing ({}); see lockstep scale --help", option, why);
  };
  need(!config.model.empty(), "model", "layers and parameters decide what is sent and when");
  need(arguments.nodes > 0, "nodes", "the time of a reduction depends on their number");
  need(!arguments.links.link.empty() || arguments.nodes == 1, "link", "it carries the reductions");
  need(arguments.images_per_second > 0, "images-per-second",
       "only a measurement knows how fast one rank computes");
  const std::int64_t ranks = arguments.nodes * arguments.ranks_per_node;
  if (config.shard_group == 0) config.shard_group = arguments.ranks_per_node;
  const bool divides =
      ranks % config.shard_group == 0 && (arguments.ranks_per_node % config.shard_group == 0 ||
                                          config.shard_group % arguments.ranks_per_node == 0);
  if (!divides) {
    fail(ExitStatus::usage,
         "--shard-group {} does not divide {} ranks into equal groups of whole nodes or parts of "
         "one; give another number",
         config.shard_group, ranks);
  }
  return arguments;
}

struct Row {
  std::string mode;
  double bucket_mb = 0;  ///< 0: none
  PredictedStep time;
  StepPlan plan;
};

/// All modes that make a difference on this cluster, then other bucket sizes.
std::vector<Row> predict(const ScaleArguments& arguments, const Graph& graph,
                         const Cluster& cluster) {
  std::vector<Row> rows;
  Config config = arguments.config;
  const auto add = [&](ShardMode mode, double bucket_mb) {
    config.shard = mode;
    config.bucket_mb = bucket_mb;
    StepPlan plan =
        plan_step(config, graph,
                  {.ranks = cluster.ranks(), .images_per_second = arguments.images_per_second});
    const PredictedStep time = predict_step(plan, cluster);
    rows.push_back({.mode = std::string(to_string(mode)),
                    .bucket_mb = mode == ShardMode::none ? bucket_mb : 0,
                    .time = time,
                    .plan = std::move(plan)});
  };
  for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer, ShardMode::grad,
                               ShardMode::full, ShardMode::hybrid}) {
    const bool is_full = config.shard_group == 1 || config.shard_group == cluster.ranks();
    if (mode == ShardMode::hybrid && is_full) continue;
    add(mode, arguments.config.bucket_mb);
  }
  for (const double bucket_mb : {1.0, 5.0, 10.0, 25.0, 50.0, 100.0}) {
    if (bucket_mb != arguments.config.bucket_mb) add(ShardMode::none, bucket_mb);
  }
  return rows;
}

std::string text_of(const ScaleArguments& arguments, const Cluster& cluster,
                    const std::vector<Row>& rows) {
  const Config& config = arguments.config;
  const auto images = static_cast<double>(config.batch_size * config.accumulate * cluster.ranks());
  std::string text = fmt::format(
      "predicted, not measured: {} on {} nodes with {} rank{} each, {} images a rank{}, {} "
      "images/s a rank\n"
      "  {:<10}{:>11}{:>10}{:>13}{:>13}{:>14}\n",
      config.model, cluster.nodes, cluster.ranks_per_node, cluster.ranks_per_node == 1 ? "" : "s",
      config.batch_size,
      config.accumulate > 1 ? fmt::format(" x {} micro-steps", config.accumulate) : "",
      arguments.images_per_second, "--shard", "--bucket-mb", "step ms", "exposed ms", "efficiency",
      "images/s");
  for (const Row& row : rows) {
    text += fmt::format("  {:<10}{:>11}{:>10.2f}{:>13.2f}{:>12.1f}%{:>14.1f}\n", row.mode,
                        row.bucket_mb > 0 ? fmt::format("{}", row.bucket_mb) : "-",
                        1e3 * row.time.total, 1e3 * row.time.exposed(), 100 * row.time.efficiency(),
                        images / row.time.total);
  }
  return text;
}

/// Where one group of all ranks is slow: what groups of fewer would take.
std::string hybrid_advice(const Cluster& cluster, const std::vector<Row>& rows) {
  const auto hybrid = std::ranges::find(rows, "hybrid", &Row::mode);
  if (cluster.ranks() < fewest_ranks_for_hybrid || hybrid == rows.end()) return "";
  std::string text;
  for (const Row& row : rows) {
    if (row.mode != "grad" && row.mode != "full") continue;
    if (hybrid->time.total > (1 - worthwhile) * row.time.total) continue;
    text += fmt::format(
        "warning: --shard {} over all {} ranks takes {:.2f} ms a step; --shard hybrid in groups of "
        "{} takes {:.2f} ms\n",
        row.mode, cluster.ranks(), 1e3 * row.time.total, hybrid->plan.shard_group,
        1e3 * hybrid->time.total);
  }
  return text;
}

/// The best row without sharding, and what else would help.
std::string advice(const ScaleArguments& arguments, const Graph& graph, const Cluster& cluster,
                   const std::vector<Row>& rows) {
  const auto better = [](const Row* best, const Row& row) {
    // Differences below a thousandth are no reason.
    return best == nullptr || row.time.total < 0.999 * best->time.total;
  };
  const Row* plain = nullptr;
  const Row* sharded = nullptr;
  for (const Row& row : rows) {
    const Row*& best = row.bucket_mb > 0 ? plain : sharded;
    if (better(best, row)) best = &row;
  }
  std::string text = fmt::format(
      "recommended: --bucket-mb {} ({:.1f} %); if memory is short, --shard {} ({:.1f} %)\n",
      plain->bucket_mb, 100 * plain->time.efficiency(), sharded->mode,
      100 * sharded->time.efficiency());
  if (plain->time.efficiency() >= 0.95) return text;
  Config config = arguments.config;
  config.shard = ShardMode::none;
  config.bucket_mb = plain->bucket_mb;
  for (config.accumulate = 2 * arguments.config.accumulate; config.accumulate <= 64;
       config.accumulate *= 2) {
    const PredictedStep time = predict_step(config, graph, cluster, arguments.images_per_second);
    if (time.efficiency() < 0.95 && config.accumulate < 64) continue;
    return text + fmt::format("with a larger global batch: --accumulate {} ({:.1f} %)\n",
                              config.accumulate, 100 * time.efficiency());
  }
  return text;
}

Json json_of(const StepPlan& plan) {
  Json json = Json::array();
  for (const StepAction& action : plan.actions) {
    switch (action.kind) {
      case StepAction::Kind::compute:
        json.push_back({{"compute", action.seconds}});
        break;
      case StepAction::Kind::wait:
        json.push_back({{"wait", action.collective}});
        break;
      case StepAction::Kind::start:
        json.push_back({{"start", action.collective},
                        {"collective", to_string(action.what)},
                        {"ranks", to_string(action.ranks)},
                        {"bytes", action.bytes}});
    }
  }
  return json;
}

Json json_of(const ScaleArguments& arguments, const Cluster& cluster,
             const std::vector<Row>& rows) {
  Json json{{"predicted", true},
            {"nodes", cluster.nodes},
            {"ranks_per_node", cluster.ranks_per_node},
            {"rows", Json::array()}};
  for (const Row& row : rows) {
    json["rows"].push_back({{"shard", row.mode},
                            {"bucket_mb", row.bucket_mb > 0 ? Json(row.bucket_mb) : Json()},
                            {"step_seconds", row.time.total},
                            {"compute_seconds", row.time.compute},
                            {"exposed_communication_seconds", row.time.exposed()},
                            {"efficiency", row.time.efficiency()}});
    if (!arguments.plans) continue;
    json["rows"].back()["shard_group"] = row.plan.shard_group;
    json["rows"].back()["plan"] = json_of(row.plan);
  }
  return json;
}

}  // namespace

ExitStatus run_scale(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    print_help();
    return ExitStatus::ok;
  }
  const ScaleArguments arguments =
      check(scale_options().parse(invocation.arguments, /*allow_positional=*/false).value);
  const Config& config = arguments.config;
  const Graph graph = described_model(config);
  const Cluster cluster = cluster_of(arguments.links, static_cast<int>(arguments.nodes),
                                     static_cast<int>(arguments.ranks_per_node));
  const std::vector<Row> rows = predict(arguments, graph, cluster);
  if (arguments.json) {
    print_json(json_of(arguments, cluster, rows));
  } else {
    print_out("{}{}{}", Lines{text_of(arguments, cluster, rows)},
              Lines{advice(arguments, graph, cluster, rows)}, Lines{hybrid_advice(cluster, rows)});
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
