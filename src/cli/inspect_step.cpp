// The list of ops of a rank's step: `inspect --model NAME --step`.
#include "inspect_report.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/parallel/step_plan.hpp"
#include "lockstep/step/step_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

class Listing final {
 public:
  Listing(const Graph& graph, const Config& config, int ranks)
      : graph_(graph),
        config_(config),
        ranks_(ranks),
        step_(parallel_steps(config, graph, ranks)),
        names_(value_names(step_.steps, graph)),
        last_uses_(step_.steps.last_uses()) {}

  [[nodiscard]] Report report() const {
    Report report;
    report.text = fmt::format(
        "one rank's step, of {} ranks, --shard {}, on CPUs: {} samples a micro-step, {}; {} ops, "
        "the last {} once per step\n"
        "  {:>4}  {:<42}  {:<34}  {:<28}  {:>11}  {:>9}  {:>5}\n",
        ranks_, to_string(config_.shard), config_.batch_size, to_string(config_.precision),
        step_.steps.ops.size(), step_.steps.ops.size() - step_.micro_ops, "", "op", "reads",
        "writes", "shape", "MiB", "until");
    report.json = {{"ops", Json::array()}};
    for (std::size_t i = 0; i < step_.steps.ops.size(); ++i) add(i, report);
    return report;
  }

 private:
  void add(std::size_t index, Report& report) const {
    const StepOp& op = step_.steps.ops[index];
    const bool has_values = op.computes();
    const bool sums = sums_over_ranks(op, config_, graph_);
    const std::string name = !has_values
                                 ? name_of_unit(op)
                                 : fmt::format("{} {}{}", kind_name(op), subject_of(op, graph_),
                                               sums ? ", with a sum over ranks" : "");
    Json entry{{"op", std::string(kind_name(op))},
               {"of", has_values ? subject_of(op, graph_) : place_of(op)},
               {"reads", named(op.reads())},
               {"writes", Json::array()}};
    std::vector<std::string> completed;
    for (const ParameterId id : op.completes) completed.push_back(parameter(id).name);
    if (!completed.empty()) entry["completes"] = completed;
    if (sums) entry["sums_over_ranks"] = true;
    if (op.in_last_micro_step) entry["in_last_micro_step"] = true;
    if (op.is_collective()) {
      entry["collective"] = to_string(collective_of(op, step_).what);
      if (starts(op)) entry["bytes"] = bytes_sent(op);
      report.text += fmt::format("  {:>4}  {:<106}  {:>13.2f}\n", index, name,
                                 static_cast<double>(bytes_sent(op)) / 0x1p20);
    } else if (!has_values) {
      report.text += fmt::format("  {:>4}  {}\n", index, name);
    }
    // Of an op that does not fit beside what it writes, that has lines of its own.
    std::string reads = joined(op.reads());
    std::string reads_of = name;
    const bool fits = name.size() <= 42 && reads.size() <= 34;
    if (has_values && (!fits || op.writes().empty())) {
      report.text += fmt::format("  {:>4}  {:<42}  {}\n", index, name, reads);
      reads_of.clear();
      reads.clear();
    }
    for (const StepValueId id : op.writes()) {
      const auto at = static_cast<std::size_t>(id);
      const StepValue& value = step_.steps.values[at];
      const Shape shape = graph_.nodes()[static_cast<std::size_t>(value.of)].output;
      const bool saved = value.kind == StepValue::Kind::saved;
      report.text += fmt::format(
          "  {:>4}  {:<42}  {:<34}  {:<28}  {:>11}  {:>9}  {:>5}\n",
          reads_of.empty() ? std::string() : std::to_string(index), reads_of, reads, names_[at],
          saved ? "" : to_string(shape),
          saved ? "" : fmt::format("{:.2f}", static_cast<double>(bytes_of(value)) / 0x1p20),
          last_uses_[at]);
      reads_of.clear();
      reads.clear();
      Json written{{"value", names_[at]}, {"last_read_by", last_uses_[at]}};
      if (!saved) {
        written["shape"] = shape.extents();
        written["bytes"] = bytes_of(value);
      }
      entry["writes"].push_back(std::move(written));
    }
    report.json["ops"].push_back(std::move(entry));
  }

  [[nodiscard]] const Parameter& parameter(ParameterId id) const {
    return graph_.parameters()[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::vector<std::string> named(const std::vector<StepValueId>& ids) const {
    std::vector<std::string> names;
    names.reserve(ids.size());
    for (const StepValueId id : ids) names.push_back(names_[static_cast<std::size_t>(id)]);
    return names;
  }
  [[nodiscard]] std::string joined(const std::vector<StepValueId>& ids) const {
    return fmt::format("{}", fmt::join(named(ids), ", "));
  }
  /// Of a batch of a value. Logits are fp32.
  [[nodiscard]] std::int64_t bytes_of(const StepValue& value) const {
    const bool narrow = config_.precision == Precision::bf16 && value.of != graph_.logits();
    const Shape& shape = graph_.nodes()[static_cast<std::size_t>(value.of)].output;
    return config_.batch_size * shape.elements() * (narrow ? 2 : 4);
  }
  using Kind = StepOp::Kind;
  [[nodiscard]] static bool starts(const StepOp& op) {
    return op.kind == Kind::start_gather || op.kind == Kind::start_reduction ||
           op.kind == Kind::start_replica_reduction || op.kind == Kind::start_tail;
  }
  [[nodiscard]] static bool over_replicas(const StepOp& op) {
    return op.kind == Kind::start_replica_reduction || op.kind == Kind::await_replica_reduction;
  }
  [[nodiscard]] static bool of_tail(const StepOp& op) {
    return op.kind == Kind::start_tail || op.kind == Kind::await_tail;
  }
  [[nodiscard]] std::size_t bytes_sent(const StepOp& op) const {
    return static_cast<std::size_t>(collective_of(op, step_).bytes);
  }
  [[nodiscard]] std::string place_of(const StepOp& op) const {
    if (op.kind == Kind::decide || op.kind == Kind::update_all) return "all parameters";
    std::string unit =
        fmt::format("{} {}", config_.shard == ShardMode::none ? "bucket" : "unit", op.unit);
    if (!of_tail(op)) return unit;
    return step_.tail_joins_last ? unit + " and the tail" : "the tail";
  }
  [[nodiscard]] std::string name_of_unit(const StepOp& op) const {
    if (!op.is_collective()) return fmt::format("{} of {}", kind_name(op), place_of(op));
    return fmt::format(
        "{} the {} of {}{}{}", starts(op) ? "start" : "wait for",
        to_string(collective_of(op, step_).what), place_of(op),
        over_replicas(op) ? " over the replicas" : "",
        op.in_last_micro_step && config_.accumulate > 1 ? ", in the last micro-step" : "");
  }

  const Graph& graph_;
  const Config& config_;
  int ranks_;
  ParallelSteps step_;
  std::vector<std::string> names_;
  std::vector<std::size_t> last_uses_;
};

}  // namespace

Report inspect_step(const Graph& graph, const Config& config, int ranks) {
  if (config.precision != Precision::fp32 && config.precision != Precision::bf16) {
    fail(ExitStatus::usage,
         "--step with --precision {} (it lists what CPUs compute, in fp32 or bf16); drop one",
         to_string(config.precision));
  }
  return Listing(graph, config, ranks).report();
}

}  // namespace lockstep::cli
