#include "lockstep/step/step_graph.hpp"

#include "index.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

class Fusing final {
 public:
  Fusing(StepGraph steps, const Graph& graph) : steps_(std::move(steps)), graph_(graph) {
    for (const StepOp& op : steps_.ops) read(op);
  }

  /// Fuses each op of type T that `merge(producer, op)` merges into the op that computes its last
  /// operand, if nothing else reads that.
  template <typename T, typename Merge>
  void fuse_all(const Merge& merge) {
    std::vector<StepOp> kept;
    kept.reserve(steps_.ops.size());
    std::vector<StepOp*> producer(steps_.values.size());
    for (StepOp& op : steps_.ops) {
      if (as<T>(op) != nullptr) {
        const StepValueId last = std::ranges::max(op.inputs);
        StepOp* const before = producer[at(last)];
        if (before != nullptr && readers_[at(last)] == 1 && merge(*before, op)) {
          before->output = op.output;
          producer[at(*op.output)] = before;
          continue;
        }
      }
      kept.push_back(std::move(op));
      if (kept.back().output) producer[at(*kept.back().output)] = &kept.back();
    }
    steps_.ops = std::move(kept);
  }

  /// Pairs norms with the norms to whose values theirs are added. Excludes norms of the input: no
  /// earlier node completes their gradients. Of the two, only the added one may drop samples.
  void pair_norms() {
    const std::vector<bool> needed = needs_gradient(graph_);
    for (StepOp& op : steps_.ops) {
      if (!op.fused.sum || std::get<BatchNorm>(node(op).op).options.drop.probability != 0) continue;
      const StepValueId addend = op.inputs.back();
      const auto added = std::ranges::find(steps_.ops, std::optional(addend), &StepOp::output);
      if (added == steps_.ops.end() || readers_[at(addend)] != 1) continue;
      if (as<BatchNorm>(*added) == nullptr || added->fused != Fused{}) continue;
      if (!needed[at(added->inputs[0])]) continue;
      op.fused.added_norm = added->node;
      added->fused.only_statistics = true;
    }
  }

  template <typename T>
  [[nodiscard]] const T* as(const StepOp& op) const {
    return op.kind == StepOp::Kind::forward ? std::get_if<T>(&node(op).op) : nullptr;
  }
  [[nodiscard]] StepGraph take() { return std::move(steps_); }

 private:
  [[nodiscard]] const Node& node(const StepOp& op) const { return graph_.nodes()[at(op.node)]; }
  void read(const StepOp& op) {
    readers_.resize(steps_.values.size());
    for (const StepValueId input : op.inputs) ++readers_[at(input)];
  }

  StepGraph steps_;
  const Graph& graph_;
  std::vector<int> readers_;  ///< by value
};

}  // namespace

StepGraph fuse(StepGraph steps, const Graph& graph, const Fusions& fusions) {
  Fusing fusing(std::move(steps), graph);
  fusing.fuse_all<Add>([&](StepOp& norm, const StepOp& sum) {
    if (fusing.as<BatchNorm>(norm) == nullptr || norm.fused.sum) return false;
    norm.fused.sum = sum.node;
    norm.inputs.push_back(std::ranges::min(sum.inputs));
    return true;
  });
  if (fusions.pairs_norms) fusing.pair_norms();
  fusing.fuse_all<Relu>([&](StepOp& before, const StepOp& relu) {
    const bool takes = fusing.as<BatchNorm>(before) != nullptr || fusing.as<Add>(before) != nullptr;
    if (!takes || before.fused.relu) return false;
    before.fused.relu = relu.node;
    return true;
  });
  fusing.fuse_all<MaxPool>([&](StepOp& norm, const StepOp& pool) {
    const auto* const op = fusing.as<BatchNorm>(norm);
    if (op == nullptr || !norm.fused.relu || norm.fused.sum || norm.fused.pool) return false;
    if (op->options.drop.probability != 0 || fusions.pools == nullptr) return false;
    if (!fusions.pools(fusing.as<MaxPool>(pool)->options)) return false;
    norm.fused.pool = pool.node;
    return true;
  });
  return fusing.take();
}

}  // namespace lockstep
