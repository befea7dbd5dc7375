#pragma once

#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/step/step_graph.hpp"
#include "lockstep/step/step_text.hpp"
#include "program.hpp"
#include "step_lists.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The part of a program's builder that all engines share: the tensors of a step's values, step
/// lists, and units. A Tensor has the member `buffer`: the index of its planned buffer, or -1.
template <typename Tensor, typename Step>
class GraphBuilder {
 public:
  struct Context {
    const Graph& graph;
    const StepGraph& steps;
    const ParameterArena& arena;
  };
  GraphBuilder(const Context& context, const ProgramOptions& options)
      : context_(context),
        options_(options),
        last_uses_(context.steps.last_uses()),
        tensors_(context.steps.values.size()),
        again_(context.steps.values.size()),
        gathered_(context.arena.layout().units.size()),
        unit_gradients_(context.arena.layout().units.size()) {}
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  [[nodiscard]] const Graph& graph() const noexcept { return context_.graph; }
  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }

  // Values. While an op is lowered, its operands have tensors.
  [[nodiscard]] const Tensor& value(StepValueId id) {
    if (again_[at(id)]) compute_again(*again_[at(id)]);
    assert(tensors_[at(id)].has_value());
    return *tensors_[at(id)];
  }
  void set_value(StepValueId id, Tensor tensor) {
    if (tensor.buffer >= 0) {
      const auto buffer = static_cast<std::size_t>(tensor.buffer);
      if (buffer >= read_until_.size()) read_until_.resize(buffer + 1);
      read_until_[buffer] = std::max(read_until_[buffer], last_uses_[at(id)]);
    }
    tensors_[at(id)] = std::move(tensor);
  }
  /// Whether no later op reads the value, or another one in the same buffer, so that the current op
  /// may overwrite it.
  [[nodiscard]] bool overwritable(StepValueId id) {
    const Tensor& tensor = value(id);
    return tensor.buffer >= 0 && read_until_[static_cast<std::size_t>(tensor.buffer)] <= current_;
  }

  /// `lower` lowers an op of kind `recompute`.
  void set_lower_again(std::function<void(const StepOp&)> lower) {
    lower_again_ = std::move(lower);
  }
  /// Begins the op with this index.
  void begin(std::size_t index) {
    current_ = index;
    // What only this op reads is computed again once it asks for it, what others read too now.
    for (const std::size_t op : std::exchange(deferred_, {})) {
      const StepOp& again = context_.steps.ops[op];
      std::size_t last = last_uses_[at(*again.output)];
      if (again.saved) last = std::max(last, last_uses_[at(*again.saved)]);
      last > index ? compute_again(op) : unasked_.push_back(op);
    }
  }
  /// Ends it; what it has not asked for is not computed.
  void end() {
    for (const std::size_t op : std::exchange(unasked_, {})) forget(op);
  }
  /// Leaves an op that computes a value again to the op that reads the value.
  void defer(std::size_t index) {
    deferred_.push_back(index);
    const StepOp& op = context_.steps.ops[index];
    again_[at(*op.output)] = index;
    if (op.saved) again_[at(*op.saved)] = index;
  }

  void begin_backward() { lists_.begin_backward(); }

  /// Whether the parameter has no gradient. Lowerings then leave its gradient, zeros, as it is.
  [[nodiscard]] bool is_frozen(ParameterId id) const {
    return context_.arena.layout().view_of(id).lr_scale == 0;
  }
  /// The steps listed last complete the parameter's gradient.
  virtual void complete(ParameterId /*id*/) {}

  /// The step that is listed next uses the tensor.
  void touch(const Tensor& tensor) {
    if (tensor.buffer >= 0) lists_.touch(tensor.buffer);
  }

  // Collectives. Gradients that the engine does not hold are placed in the memory plan of
  // activations.
  void start_gather(const StepOp& op) {
    const std::size_t unit = op.unit;
    gathered_[unit] = make_unit(unit, UnitContent::parameters);
    touch(gathered_[unit]);
    exchange(
        op, gathered_[unit],
        [unit, bytes = context_.arena.unit_bytes(unit)](UnitExchange& exchange, std::byte* values) {
          exchange.start_gather(unit, {values, bytes});
        });
  }
  void await_gather(const StepOp& op) {
    exchange(op, {},
             [unit = op.unit](UnitExchange& exchange, std::byte*) { exchange.await_gather(unit); });
    if (!context_.arena.holds_parameters()) unit_arrived(op.unit);
  }
  void start_reduction(const StepOp& op) {
    const std::size_t unit = op.unit;
    if (context_.arena.holds_gradients()) {
      return exchange(op, {},
                      [unit, gradients = held_gradients(unit)](UnitExchange& exchange, std::byte*) {
                        exchange.start_reduction(unit, gradients);
                      });
    }
    touch(unit_gradients(unit));  // zeros if all of its parameters are frozen
    exchange(op, *unit_gradients_[unit],
             [unit, size = context_.arena.layout().units[unit].size()](UnitExchange& exchange,
                                                                       std::byte* values) {
               exchange.start_reduction(
                   unit, {static_cast<const float*>(static_cast<const void*>(values)), size});
             });
  }
  void await_reduction(const StepOp& op) {
    touch(*unit_gradients_[op.unit]);
    exchange(op, {}, [unit = op.unit](UnitExchange& exchange, std::byte*) {
      exchange.await_reduction(unit);
    });
  }
  void start_replica_reduction(const StepOp& op) {
    exchange(op, {}, [unit = op.unit](UnitExchange& exchange, std::byte*) {
      exchange.start_replica_reduction(unit);
    });
  }

 protected:
  ~GraphBuilder() = default;
  using Lists = StepLists<Step>;
  [[nodiscard]] static std::size_t at(int id) { return static_cast<std::size_t>(id); }

  [[nodiscard]] Lists& lists() noexcept { return lists_; }
  [[nodiscard]] const Tensor& gathered(std::size_t unit) const { return gathered_[unit]; }
  [[nodiscard]] const Tensor& unit_gradients(std::size_t unit) {
    if (!unit_gradients_[unit]) {
      unit_gradients_[unit] = make_unit(unit, UnitContent::gradients);
      clear_gaps(unit, *unit_gradients_[unit]);
    }
    return *unit_gradients_[unit];
  }

  enum class UnitContent { parameters, gradients };

 private:
  // Implemented by each engine's builder.
  /// A new tensor for all values of a unit: parameters in the type in which they are gathered,
  /// gradients in fp32.
  [[nodiscard]] virtual Tensor make_unit(std::size_t unit, UnitContent content) = 0;
  /// Called when a unit's parameters have been gathered.
  virtual void unit_arrived(std::size_t /*unit*/) {}
  /// Zeroes at least the gaps between a unit's gradients.
  virtual void clear_gaps(std::size_t unit, const Tensor& gradients) = 0;
  /// A step that calls `run` with the address of a tensor's values; null if it has no buffer.
  [[nodiscard]] virtual Step exchange_step(std::string name, const Tensor& tensor,
                                           std::function<void(std::byte*)> run,
                                           bool in_last_micro_step) = 0;

  template <typename Run>
  void exchange(const StepOp& op, const Tensor& tensor, Run run) {
    lists_.add(exchange_step(
        std::string(kind_name(op)), tensor,
        [exchange = options_.exchange, run](std::byte* values) { run(*exchange, values); },
        op.in_last_micro_step));
  }
  [[nodiscard]] std::span<const float> held_gradients(std::size_t unit) const {
    const std::span<const std::size_t> ends = unit_ends(context_.arena, options_);
    const std::size_t begin = unit == 0 ? 0 : ends[unit - 1];
    return context_.arena.gradients().subspan(begin, ends[unit] - begin);
  }

  void forget(std::size_t index) {
    const StepOp& op = context_.steps.ops[index];
    again_[at(*op.output)].reset();
    if (op.saved) again_[at(*op.saved)].reset();
  }
  void compute_again(std::size_t index) {
    if (!again_[at(*context_.steps.ops[index].output)]) return;
    forget(index);
    const std::size_t reader = std::exchange(current_, index);
    lower_again_(context_.steps.ops[index]);
    current_ = reader;
  }

  Context context_;
  ProgramOptions options_;
  Lists lists_;
  std::function<void(const StepOp&)> lower_again_;
  std::vector<std::size_t> last_uses_;          ///< by value: index of the last op that reads it
  std::vector<std::size_t> read_until_;         ///< by buffer: the latest of its values' last uses
  std::vector<std::optional<Tensor>> tensors_;  ///< by value
  std::vector<std::optional<std::size_t>> again_;  ///< by value: the op that is left to its reader
  std::vector<std::size_t> deferred_;              ///< such ops before the current op
  std::vector<std::size_t> unasked_;               ///< those that the current op has not asked for
  std::size_t current_ = 0;                        ///< index of the current op
  std::vector<Tensor> gathered_;  ///< by unit: its parameters as gathered in this pass
  std::vector<std::optional<Tensor>> unit_gradients_;
};

}  // namespace lockstep
