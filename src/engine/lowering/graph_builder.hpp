#pragma once

#include "../graph_analysis.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "program.hpp"
#include "step_lists.hpp"
#include "unit_schedule.hpp"

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

/// The part of a program's builder that all engines share: step lists, gradients of values, and
/// units. A Tensor has the member `buffer`: the index of its planned buffer, or -1.
template <typename Tensor, typename Step>
class GraphBuilder {
 public:
  struct Context {
    const GraphAnalysis& analysis;
    const ParameterArena& arena;
  };
  GraphBuilder(const Context& context, const ProgramOptions& options)
      : context_(context),
        options_(options),
        gradients_(context.analysis.consumers.size()),
        schedule_(context.arena.layout().units),
        gathered_(context.arena.layout().units.size()),
        unit_gradients_(context.arena.layout().units.size()) {}
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }
  /// Null: not sharded.
  [[nodiscard]] UnitExchange* exchange() const noexcept { return options_.exchange; }
  /// Whether the value's only consumer may compute in place.
  [[nodiscard]] bool overwritable(ValueId id) const {
    const GraphAnalysis& analysis = context_.analysis;
    return (training() ? analysis.overwritable : analysis.overwritable_in_inference)[at(id)];
  }
  [[nodiscard]] bool needs_gradient(ValueId id) const {
    return context_.analysis.needs_gradient[at(id)];
  }

  // Gradients of values. The last addend of a gradient stays pending, so that the step that reads
  // the gradient can add it in the same pass over the values.
  enum class Ownership { exclusive, shared };
  /// Adds to the gradient of a value. `shared`: the tensor has other readers and must not be
  /// overwritten.
  void contribute(ValueId id, Tensor tensor, Ownership ownership, std::string name = {}) {
    if (!needs_gradient(id)) return;
    add_up(id);
    Gradient& gradient = gradients_[at(id)];
    (gradient.sum ? gradient.last : gradient.sum) =
        Contribution{.tensor = std::move(tensor), .ownership = ownership, .name = std::move(name)};
  }
  [[nodiscard]] const Tensor& gradient(ValueId id) {
    add_up(id);
    return sum_of(id).tensor;
  }
  /// Whether the gradient's tensor has no other reader, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id) {
    add_up(id);
    return sum_of(id).ownership == Ownership::exclusive;
  }
  struct OpenSum {
    Tensor left;
    Tensor right;
    Tensor target;  ///< `left` or `right` if that may be overwritten, else a new tensor
  };
  /// Takes over the pending addition of a gradient, which the caller must then compute. Empty if
  /// none is pending.
  [[nodiscard]] std::optional<OpenSum> take_open_sum(ValueId id) {
    if (!gradients_[at(id)].last) return std::nullopt;
    const Contribution last = *std::exchange(gradients_[at(id)].last, std::nullopt);
    Contribution& sum = *gradients_[at(id)].sum;
    const Tensor left = sum.tensor;
    const Tensor right = in_format_of(left, last.tensor, "gradient by " + last.name);
    Tensor target = left;
    if (right.buffer != last.tensor.buffer || last.ownership == Ownership::exclusive) {
      target = right;
    } else if (sum.ownership != Ownership::exclusive) {
      target = make_gradient(id, left);
    }
    sum = {.tensor = target, .ownership = Ownership::exclusive, .name = {}};
    return OpenSum{.left = left, .right = right, .target = target};
  }

  void begin_backward() {
    lists_.begin_backward();
    schedule_.begin_backward();
    prefetch_ = lists_.here();
  }
  void end_backward() {
    if (context_.arena.holds_gradients()) return;
    schedule_.end_backward([this](std::size_t unit) { await_reduction(unit); });
  }

  /// Whether the parameter has no gradient. Lowerings then leave its gradient, zeros, as it is.
  [[nodiscard]] bool is_frozen(ParameterId id) const {
    return context_.arena.layout().view_of(id).lr_scale == 0;
  }
  /// Marks a frozen parameter's gradient as final: no step computes it.
  void skip(ParameterId id) { complete(id); }
  /// Skips the parameters if all are frozen, and returns whether they are.
  [[nodiscard]] bool skip_if_frozen(const std::vector<ParameterId>& ids) {
    const bool all = std::ranges::all_of(ids, [this](ParameterId id) { return is_frozen(id); });
    if (!all) return false;
    for (const ParameterId id : ids) skip(id);
    return true;
  }

  /// The step that is listed next uses the tensor.
  void touch(const Tensor& tensor) {
    if (tensor.buffer >= 0) lists_.touch(tensor.buffer);
  }

 protected:
  ~GraphBuilder() = default;
  using Lists = StepLists<Step>;
  [[nodiscard]] static std::size_t at(int id) { return static_cast<std::size_t>(id); }

  [[nodiscard]] Lists& lists() noexcept { return lists_; }
  /// The pending sum's left operand.
  [[nodiscard]] const Tensor& left_addend(ValueId id) const { return sum_of(id).tensor; }
  /// The steps listed last complete the parameter's gradient.
  void complete(ParameterId id) {
    const std::size_t end = context_.arena.filled_after(id);
    if (!write_gradients(end)) return;
    lists_.fill(end);
    if (context_.arena.holds_gradients()) return;
    schedule_.reduce(
        lists_.filled(), [this](std::size_t unit) { await_reduction(unit); },
        [this](std::size_t unit) { start_reduction(unit); });
  }

  // Units. Parameters are gathered before their first use in a pass, the next unit's while this one
  // computes. Gradients are reduced as soon as all of a unit's are final. Those that the engine
  // does not hold are placed in the memory plan of activations.
  /// Makes a unit's parameters available to the next steps. Returns whether this is their first use
  /// in the pass.
  bool enter(std::size_t unit) {
    if (!schedule_.enter(unit)) return false;
    UnitExchange* const exchange = options_.exchange;
    if (!context_.arena.holds_parameters()) {
      const std::size_t bytes = context_.arena.unit_bytes(unit);
      gathered_[unit] = make_unit(unit, UnitContent::parameters);
      lists_.insert(exchange_step("start of a gather", gathered_[unit],
                                  [exchange, unit, bytes](std::byte* values) {
                                    exchange->start_gather(unit, {values, bytes});
                                  }),
                    prefetch_, gathered_[unit].buffer);
      touch(gathered_[unit]);
    }
    lists_.add(exchange_step("wait for a gather", {},
                             [exchange, unit](std::byte*) { exchange->await_gather(unit); }));
    set_prefetch();
    return true;
  }
  /// Marks the earliest position at which the next gather may start.
  void set_prefetch() { prefetch_ = lists_.here(); }
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
  /// `tensor` in the format of `other`: itself or a copy.
  [[nodiscard]] virtual Tensor in_format_of(const Tensor& other, const Tensor& tensor,
                                            const std::string& name) = 0;
  /// A new tensor for the gradient of a value, in the format of `other`.
  [[nodiscard]] virtual Tensor make_gradient(ValueId id, const Tensor& other) = 0;
  virtual void emit_sum(ValueId id, const OpenSum& sum) = 0;
  /// A new tensor for all values of a unit: parameters in the type in which they are gathered,
  /// gradients in fp32.
  [[nodiscard]] virtual Tensor make_unit(std::size_t unit, UnitContent content) = 0;
  /// Lists what is still missing for gradients in [0, end), all of which have been computed, to be
  /// final. False: their report is left to a later call.
  [[nodiscard]] virtual bool write_gradients(std::size_t /*end*/) { return true; }
  /// Zeroes at least the gaps between a unit's gradients.
  virtual void clear_gaps(std::size_t unit, const Tensor& gradients) = 0;
  /// A step that calls `run` with the address of a tensor's values; null if it has no buffer.
  [[nodiscard]] virtual Step exchange_step(std::string name, const Tensor& tensor,
                                           std::function<void(std::byte*)> run) = 0;

  struct Contribution {
    Tensor tensor;
    Ownership ownership;
    std::string name;
  };
  struct Gradient {
    std::optional<Contribution> sum;
    std::optional<Contribution> last;  ///< not yet added to `sum`
  };
  [[nodiscard]] const Contribution& sum_of(ValueId id) const {
    assert(gradients_[at(id)].sum.has_value());
    return *gradients_[at(id)].sum;
  }
  void add_up(ValueId id) {
    if (const auto sum = take_open_sum(id)) emit_sum(id, *sum);
  }
  void await_reduction(std::size_t unit) {
    touch(*unit_gradients_[unit]);
    lists_.add(exchange_step(
        "wait for a reduction", {},
        [exchange = options_.exchange, unit](std::byte*) { exchange->await_reduction(unit); }));
  }
  void start_reduction(std::size_t unit) {
    touch(unit_gradients(unit));  // zeros if all of its parameters are frozen
    const std::size_t size = context_.arena.layout().units[unit].size();
    lists_.add(exchange_step(
        "start of a reduction", *unit_gradients_[unit],
        [exchange = options_.exchange, unit, size](std::byte* values) {
          exchange->start_reduction(
              unit, {static_cast<const float*>(static_cast<const void*>(values)), size});
        }));
  }

  Context context_;
  ProgramOptions options_;
  Lists lists_;
  std::vector<Gradient> gradients_;
  UnitSchedule schedule_;
  typename Lists::Mark prefetch_;  ///< where the next unit's gather starts
  std::vector<Tensor> gathered_;   ///< by unit: its parameters as gathered in this pass
  std::vector<std::optional<Tensor>> unit_gradients_;
};

}  // namespace lockstep
