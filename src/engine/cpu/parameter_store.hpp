#pragma once

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"
#include "onednn.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::cpu {

/// The parameters and gradients of a network in flat arenas, as far as they are held here, and each
/// parameter's one memory format.
class ParameterStore final {
 public:
  struct Options {
    std::vector<Desc> formats;       ///< by parameter
    std::vector<ParameterId> ready;  ///< the order in which backward finishes their gradients
    std::size_t tail_size = 0;
    UnitOptions units = {};
  };
  ParameterStore(const Graph& graph, const Options& options);

  [[nodiscard]] const ArenaLayout& layout() const noexcept { return layout_; }
  /// Empty where they are not held, or not in fp32.
  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_.span(); }
  /// Where they are held in 16 bits; else empty.
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) noexcept;
  [[nodiscard]] std::span<float> gradients() noexcept { return gradients_.span(); }
  [[nodiscard]] bool holds_parameters() const noexcept { return units_.holds_parameters; }
  [[nodiscard]] bool holds_gradients() const noexcept { return units_.holds_gradients; }
  /// Where it is, if it is held.
  [[nodiscard]] void* parameter(ParameterId id) noexcept;
  /// Bytes from its unit's begin on, in the type that parameters come in as.
  [[nodiscard]] std::size_t bytes_into_unit(ParameterId id) const;
  /// What parameters of a unit come in as.
  [[nodiscard]] DataType type_of(std::size_t unit) const;
  [[nodiscard]] std::size_t offset_of(ParameterId id) const { return entry(id).offset; }
  /// Index into layout().units; with a rule for units only.
  [[nodiscard]] std::size_t unit_of(ParameterId id) const { return entry(id).unit; }
  /// Of fp32 values, in every arena.
  [[nodiscard]] const Desc& format_of(ParameterId id) const { return entry(id).format; }
  /// The same places, of what the parameter comes in as.
  [[nodiscard]] Desc used_format_of(ParameterId id) const;
  /// End of the arena's range that is final once this parameter and all before it are.
  [[nodiscard]] std::size_t filled_after(ParameterId id) const { return entry(id).filled; }

  // By scalar loops over precomputed offsets: no oneDNN and no OpenMP, so any thread may call them.
  void to_plain(std::span<const float> view, ParameterId id, std::span<float> plain) const;
  void from_plain(std::span<const float> plain, ParameterId id, std::span<float> view) const;

 private:
  struct Entry {
    Desc format;
    BlockedOffsets offsets;
    std::size_t offset = 0;
    std::size_t filled = 0;
    std::size_t unit = 0;
  };
  [[nodiscard]] const Entry& entry(ParameterId id) const {
    return entries_[static_cast<std::size_t>(id)];
  }

  UnitOptions units_;
  std::vector<Entry> entries_;
  ArenaLayout layout_;
  AlignedBuffer<float> parameters_;
  AlignedBuffer<std::byte> held_;  ///< instead, unit by unit, where they are held in 16 bits
  AlignedBuffer<float> gradients_;
};

}  // namespace lockstep::cpu
