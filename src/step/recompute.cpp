#include "lockstep/step/step_graph.hpp"

#include "index.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace {

/// Maximum length of a chain of values computed again from each other; the next value is kept. All
/// values of a chain are live at once, so a chain of all adds of a deep network would save nothing.
constexpr int longest_chain = 8;

bool is_cheap(const Op& op) {
  return std::visit(
      [](const auto& each) {
        return requires {
          each.is_cheap;
        };
      },
      op);
}

class Recomputation final {
 public:
  explicit Recomputation(StepGraph steps)
      : steps_(std::move(steps)),
        read_(steps_.values.size()),
        producer_(steps_.values.size()),
        again_(steps_.values.size()) {
    const auto& ops = steps_.ops;
    backward_ = static_cast<std::size_t>(
        std::ranges::find(ops, StepOp::Kind::loss_gradient, &StepOp::kind) - ops.begin());
    for (std::size_t i = backward_; i < ops.size(); ++i) {
      for (const StepValueId id : ops[i].reads()) read_[at(id)] = true;
    }
  }

  void choose(const Graph& graph, Recompute what) {
    steps_.recomputes_lazily = what == Recompute::norms;
    what == Recompute::block ? choose_blocks(graph) : choose_cheap_ops(graph);
  }

  StepGraph run() {
    std::vector<StepOp> backward(steps_.ops.begin() + static_cast<std::ptrdiff_t>(backward_),
                                 steps_.ops.end());
    steps_.ops.resize(backward_);
    for (StepOp& op : backward) {
      const auto replace = [&](StepValueId& id) { id = available(id); };
      std::ranges::for_each(op.inputs, replace);
      if (op.kind == StepOp::Kind::gradient && op.output) replace(*op.output);
      if (op.saved) replace(*op.saved);
      steps_.ops.push_back(std::move(op));
    }
    return std::move(steps_);
  }

 private:
  /// Sets producer_ for the values that only their own block reads.
  void choose_blocks(const Graph& graph) {
    constexpr int none = -1;
    std::vector<int> block_of(steps_.values.size(), none);  // by value
    std::vector<bool> leaves(steps_.values.size());         // by value: its block
    for (std::size_t i = 0; i < backward_; ++i) {
      const StepOp& op = steps_.ops[i];
      const int block = graph.nodes()[at(op.node)].block;
      for (const StepValueId input : op.inputs) {
        if (block_of[at(input)] != block) leaves[at(input)] = true;
      }
      if (op.kind == StepOp::Kind::forward) block_of[at(*op.output)] = block;
    }
    for (std::size_t i = 0; i < backward_; ++i) {
      const StepOp& op = steps_.ops[i];
      if (op.kind != StepOp::Kind::forward) continue;
      if (block_of[at(*op.output)] == none || leaves[at(*op.output)]) continue;
      producer_[at(*op.output)] = i;
      if (op.saved) producer_[at(*op.saved)] = i;
    }
  }

  /// Sets producer_ for outputs of cheap ops.
  void choose_cheap_ops(const Graph& graph) {
    // By value: number of values computed again before it; empty: not available in backward.
    std::vector<std::optional<int>> chain(steps_.values.size());
    for (std::size_t id = 0; id < chain.size(); ++id) {
      if (read_[id]) chain[id] = 0;
    }
    for (std::size_t i = 0; i < backward_; ++i) {
      const StepOp& op = steps_.ops[i];
      if (op.kind != StepOp::Kind::forward || !is_cheap(graph.nodes()[at(op.node)].op)) continue;
      int longest = 0;
      const bool there = std::ranges::all_of(op.inputs, [&](StepValueId input) {
        longest = std::max(longest, chain[at(input)].value_or(0));
        return chain[at(input)].has_value();
      });
      if (!there || longest >= longest_chain) continue;
      chain[at(*op.output)] = longest + 1;
      producer_[at(*op.output)] = i;
      // Together with the value if backward reads that; else it is kept.
      if (op.saved && read_[at(*op.output)]) producer_[at(*op.saved)] = i;
    }
  }

  /// The value as backward reads it: itself, or computed again.
  StepValueId available(StepValueId id) {
    if (!producer_[at(id)]) return id;
    if (!again_[at(id)]) compute_again(*producer_[at(id)]);
    return *again_[at(id)];
  }

  void compute_again(std::size_t forward) {
    StepOp op = steps_.ops[forward];
    for (StepValueId& input : op.inputs) input = available(input);
    op.kind = StepOp::Kind::recompute;
    const auto renew = [this](StepValueId id) {
      const StepValue value = steps_.values[at(id)];
      again_.push_back(std::nullopt);
      producer_.push_back(std::nullopt);
      again_[at(id)] = steps_.add(value);
      return *again_[at(id)];
    };
    const bool saves = op.saved && producer_[at(*op.saved)];
    op.output = renew(*op.output);
    if (saves) {
      steps_.ops[forward].saved.reset();
      op.saved = renew(*op.saved);
    } else {
      op.saved.reset();
    }
    steps_.ops.push_back(std::move(op));
  }

  StepGraph steps_;
  std::size_t backward_ = 0;  ///< index of backward's first op
  std::vector<bool> read_;    ///< by value: backward reads it
  /// By value: the forward op that can compute it again; empty: kept.
  std::vector<std::optional<std::size_t>> producer_;
  std::vector<std::optional<StepValueId>> again_;  ///< by value: the one computed again
};

}  // namespace

StepGraph recompute(StepGraph steps, const Graph& graph, Recompute what) {
  if (what != Recompute::norms && what != Recompute::block) return steps;
  Recomputation recomputation(std::move(steps));
  recomputation.choose(graph, what);
  return recomputation.run();
}

}  // namespace lockstep
