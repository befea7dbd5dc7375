#pragma once

#include "lockstep/core/recompute.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

using StepValueId = int;  ///< index into StepGraph::values

/// A value that a step computes: of the network, something else that forward saves for backward, or
/// a gradient.
struct StepValue {
  enum class Kind { value, saved, gradient };
  Kind kind;
  ValueId of;  ///< the network's value; of a saved one, the node that saves it
  friend bool operator==(const StepValue&, const StepValue&) = default;
};

/// Nodes that are computed together with a norm, or with an add (a ReLU).
struct Fused {
  std::optional<ValueId> sum;   ///< the add of the norm's value and the op's last input
  std::optional<ValueId> relu;  ///< of the sum, else of the node's value
  std::optional<ValueId> pool;  ///< the max pool of the ReLU
  /// The norm that computes the op's last input: that norm's own op takes only its statistics.
  std::optional<ValueId> added_norm;
  bool only_statistics = false;
  friend bool operator==(const Fused&, const Fused&) = default;
};

/// One op of a step. Ops run in the order of the list; the fields that a kind does not name are
/// empty.
struct StepOp {
  enum class Kind {
    forward,        ///< of a node: reads `inputs`; writes `output`, `saved`
    recompute,      ///< the same, in backward
    loss,           ///< reads `inputs`: the logits
    loss_gradient,  ///< writes `output`
    gradient,       ///< of a node: reads `inputs`, `output`, `saved`, `grad_output`; writes
                    ///< `grad_inputs`
    sum,            ///< of gradients: reads `inputs`; writes `output`
    // Collectives of a unit: of parameters, or of held gradients that are reduced together (a
    // bucket).
    start_gather,
    await_gather,
    start_reduction,
    await_reduction,
    start_replica_reduction,  ///< all-reduces this rank's shard over the replicas
    await_replica_reduction,
    // The end of a step, after its last micro-step.
    start_tail,  ///< reduces the tail, with the last unit if StepEnd::tail_joins_last
    await_tail,
    decide,      ///< reads all gradients: whether to update, and how to scale them
    update,      ///< of a unit's parameters
    update_all,  ///< of all parameters
  };
  Kind kind;
  ValueId node = 0;
  Fused fused = {};
  std::vector<StepValueId> inputs = {};
  std::optional<StepValueId> output = {};
  std::optional<StepValueId> saved = {};
  GradientOp gradient = {};
  /// The gradient of the node's output, or two addends of it.
  std::vector<StepValueId> grad_output = {};
  /// The gradient of each input; empty if it is not needed or not computed.
  std::vector<std::optional<StepValueId>> grad_inputs = {};
  /// Whose gradients are final after the op.
  std::vector<ParameterId> completes = {};
  std::size_t unit = 0;
  bool in_last_micro_step = false;  ///< of a micro-step's collective: the others skip it

  /// Whether an engine computes it.
  [[nodiscard]] bool computes() const noexcept { return kind < Kind::start_gather; }
  [[nodiscard]] bool is_collective() const noexcept {
    return !computes() && kind <= Kind::await_tail;
  }
  [[nodiscard]] std::vector<StepValueId> reads() const;
  [[nodiscard]] std::vector<StepValueId> writes() const;
};

/// A training step's micro-step, or a pass of inference, as a list of ops. The first values are
/// those of the network, by their ids.
struct StepGraph {
  std::vector<StepValue> values;
  std::vector<StepOp> ops;
  /// An op of kind `recompute` runs once its value is asked for, or not at all.
  bool recomputes_lazily = false;

  StepValueId add(StepValue value);
  /// By value: the index of the last op that reads it; 0 if none does.
  [[nodiscard]] std::vector<std::size_t> last_uses() const;
};

// Passes. Each is pure.

/// Error(usage) unless the graph ends in a loss and every other value is used.
void require_complete(const Graph& graph);
/// The ops of a complete network in order, ending with its loss.
[[nodiscard]] StepGraph forward_steps(const Graph& graph);

/// What an engine computes in one pass over the values.
struct Fusions {
  bool relu_takes_sums = false;  ///< a ReLU's gradient adds the last two addends that arrive
  /// A norm that nothing else reads and that is added to another norm is computed with that one.
  bool pairs_norms = false;
  bool (*pools)(const PoolOptions&) = nullptr;  ///< whether norm and ReLU compute this max pool
};
/// Fuses additions, ReLUs and max pools into the norms before them, and ReLUs into additions. An
/// addition is fused into the operand that is computed last, if that is a norm with no other
/// reader: the other operand is then available.
[[nodiscard]] StepGraph fuse(StepGraph steps, const Graph& graph, const Fusions& fusions);

/// Appends backward. A norm's gradient, without a pool, adds the last two addends that arrive.
[[nodiscard]] StepGraph differentiate(StepGraph steps, const Graph& graph, const Fusions& fusions);

/// Lets backward compute values again: with Recompute::norms, what cheap ops can compute from
/// values that it reads anyway; with Recompute::block, all values of a block of the network that no
/// other block reads, before the block's gradients.
[[nodiscard]] StepGraph recompute(StepGraph steps, const Graph& graph, Recompute what);

/// A micro-step: the passes above, in order.
[[nodiscard]] StepGraph training_steps(const Graph& graph, const Fusions& fusions, Recompute what);

/// Units of parameters, in the order in which backward completes their gradients.
struct StepUnits {
  std::vector<std::size_t> unit_of = {};       ///< by parameter
  std::vector<std::size_t> filled_after = {};  ///< by parameter, as filled_after_each()
  std::vector<std::size_t> ends = {};          ///< by unit
  std::vector<bool> stays = {};                ///< by unit: gathered once for forward and backward
  bool gathers = false;                        ///< parameters are not held
  bool awaits = false;                         ///< forward awaits each unit before its first use
  /// Most reductions that a micro-step has in flight. Empty: gradients are held, so that the last
  /// micro-step alone reduces them and the end of the step awaits them.
  std::optional<std::size_t> reductions_in_flight = {};
  bool has_replicas = false;  ///< sums over a shard group are summed over the replicas
};
/// Gathers each unit before its first use in a pass, the next one while it computes; reduces its
/// gradients once all are final.
[[nodiscard]] StepGraph shard(StepGraph steps, const Graph& graph, const StepUnits& units);

/// How a step ends.
struct StepEnd {
  std::size_t units = 0;           ///< whose gradients are reduced
  bool tail_joins_last = false;    ///< the last unit and the tail are one reduction
  bool awaits_reductions = false;  ///< gradients are held: their reductions are in flight
  bool has_replicas = false;       ///< as StepUnits
  bool gathers = false;            ///< parameters are held: ranks gather what others updated
  // Why the update depends on all gradients.
  bool clips = false;
  bool accumulates = false;
  bool skips_overflow = false;       ///< dynamic loss scaling
  bool optimizer_needs_all = false;  ///< LARS, LAMB
  [[nodiscard]] bool decides() const noexcept {
    return clips || accumulates || skips_overflow || optimizer_needs_all;
  }
};
/// The ops after a step's last micro-step. Each unit is updated as its reduction ends, unless the
/// update depends on all gradients.
[[nodiscard]] std::vector<StepOp> end_of_step(const StepEnd& end);

/// By node: whether a trained parameter precedes its value.
[[nodiscard]] std::vector<bool> needs_gradient(const Graph& graph);
/// The order in which backward completes the gradients of all parameters.
[[nodiscard]] std::vector<ParameterId> gradient_order(const Graph& graph);

}  // namespace lockstep
