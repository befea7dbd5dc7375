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

/// A network's parameters and gradients in flat arenas, as far as the engine holds them, and each
/// parameter's memory format.
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
  /// Empty if parameters are not held, or not in fp32.
  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_.span(); }
  /// A unit's parameters if they are held in 16 bits; else empty.
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) noexcept;
  [[nodiscard]] std::span<float> gradients() noexcept { return gradients_.span(); }
  [[nodiscard]] bool holds_parameters() const noexcept { return units_.holds_parameters; }
  [[nodiscard]] bool holds_gradients() const noexcept { return units_.holds_gradients; }
  /// Address of the parameter; parameters must be held.
  [[nodiscard]] void* parameter(ParameterId id) noexcept;
  /// Byte offset in the parameter's unit, in the type in which parameters are gathered.
  [[nodiscard]] std::size_t bytes_into_unit(ParameterId id) const;
  /// Type in which a unit's parameters are gathered.
  [[nodiscard]] DataType type_of(std::size_t unit) const;
  [[nodiscard]] std::size_t offset_of(ParameterId id) const { return entry(id).offset; }
  /// Index into layout().units; only with a UnitRule.
  [[nodiscard]] std::size_t unit_of(ParameterId id) const { return entry(id).unit; }
  /// Format of the fp32 values in every arena.
  [[nodiscard]] const Desc& format_of(ParameterId id) const { return entry(id).format; }
  /// The same layout in the type in which the parameter is gathered.
  [[nodiscard]] Desc used_format_of(ParameterId id) const;
  /// End of the arena prefix that is final once this parameter's gradient and all before it are.
  [[nodiscard]] std::size_t filled_after(ParameterId id) const { return entry(id).filled; }

  // Scalar loops over precomputed offsets, without oneDNN or OpenMP, so any thread may call them.
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
  AlignedBuffer<std::byte> held_;  ///< replaces parameters_ if held in 16 bits, unit by unit
  AlignedBuffer<float> gradients_;
};

}  // namespace lockstep::cpu
