#pragma once

#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/element_offsets.hpp"
#include "lockstep/engine/engine_memory.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// How an engine stores a parameter's fp32 values.
struct ParameterFormat {
  std::size_t size = 0;  ///< including padding, which is zero
  ElementOffsets offsets;
};

/// A network's parameters and gradients in flat arenas, as far as the engine holds them: in the
/// engine's own layouts, gaps and padding zero. Backward fills the gradient arena upward from 0:
/// the last layer's parameters come first.
class ParameterArena final {
 public:
  enum class Use { computation, communication };
  /// Allocates zeros in the engine's memory.
  using Allocate = std::function<std::shared_ptr<ArenaMemory>(std::size_t count, Use use)>;
  struct Options {
    std::vector<ParameterFormat> formats;  ///< by parameter
    std::size_t tail_size = 0;             ///< values after the gradients
    UnitOptions units = {};
  };
  ParameterArena(const Graph& graph, Options options, const Allocate& allocate);

  [[nodiscard]] const ArenaLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] const UnitOptions& unit_options() const noexcept { return units_; }
  [[nodiscard]] bool holds_parameters() const noexcept { return units_.holds_parameters; }
  [[nodiscard]] bool holds_gradients() const noexcept { return units_.holds_gradients; }
  [[nodiscard]] bool holds_16_bit() const noexcept { return units_.holds_16_bit(); }
  /// Empty if parameters are not held, or not in fp32.
  [[nodiscard]] std::span<float> parameters() const noexcept { return parameters_; }
  /// A unit's parameters if they are held in 16 bits; else empty.
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) const noexcept;
  /// The gradients, if they are held, then the tail (see tail_bucket).
  [[nodiscard]] std::span<float> gradients() const noexcept { return gradients_; }

  [[nodiscard]] std::size_t size_of(ParameterId id) const { return entry(id).format.size; }
  /// Index into layout().units; only with a UnitRule.
  [[nodiscard]] std::size_t unit_of(ParameterId id) const {
    return step_units_.unit_of[static_cast<std::size_t>(id)];
  }
  /// Whether a unit's parameters are gathered, and held, in 16 bits.
  [[nodiscard]] bool is_16_bit(std::size_t unit) const {
    return layout_.is_sharded() && units_.is_16_bit(layout_.units[unit]);
  }
  /// Place of a parameter, in values, in the arena and in its unit.
  [[nodiscard]] std::size_t offset_of(ParameterId id) const { return entry(id).offset; }
  [[nodiscard]] std::size_t offset_in_unit(ParameterId id) const {
    return offset_of(id) - layout_.units[unit_of(id)].begin;
  }
  /// Place of a parameter, in bytes, in its unit as gathered.
  [[nodiscard]] std::size_t bytes_into_unit(ParameterId id) const {
    return offset_in_unit(id) * units_.value_bytes(layout_.units[unit_of(id)]);
  }
  [[nodiscard]] std::size_t unit_bytes(std::size_t unit) const {
    return layout_.units[unit].size() * units_.value_bytes(layout_.units[unit]);
  }
  /// Address of a parameter or its gradient, which must be held.
  [[nodiscard]] std::byte* parameter(ParameterId id) const;
  [[nodiscard]] float* gradient(ParameterId id) const { return gradients_.data() + offset_of(id); }
  /// End of the arena prefix that is final once this parameter's gradient and all before it are.
  [[nodiscard]] std::size_t filled_after(ParameterId id) const {
    return step_units_.filled_after[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const StepUnits& step_units() const noexcept { return step_units_; }

  /// Convert between a parameter's view of an arena in host memory (parameters, gradients or an
  /// optimizer's slot) and torchvision's plain layout. Thread-safe, so that a checkpoint can be
  /// written concurrently.
  void to_plain(std::span<const float> view, ParameterId id, std::span<float> plain) const;
  void from_plain(std::span<const float> plain, ParameterId id, std::span<float> view) const;

 private:
  struct Entry {
    ParameterFormat format;
    std::size_t offset = 0;
  };
  [[nodiscard]] const Entry& entry(ParameterId id) const {
    return entries_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::span<float> keep(std::shared_ptr<ArenaMemory> memory);

  UnitOptions units_;
  std::vector<Entry> entries_;
  ArenaLayout layout_;
  StepUnits step_units_;
  std::vector<std::shared_ptr<ArenaMemory>> memory_;
  std::span<float> parameters_;
  std::span<std::byte> held_;  ///< replaces parameters_ if held in 16 bits, unit by unit
  std::span<float> gradients_;
};

}  // namespace lockstep
