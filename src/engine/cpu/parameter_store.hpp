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
  /// Empty where they are not held.
  [[nodiscard]] std::span<float> parameters() noexcept { return parameters_.span(); }
  [[nodiscard]] std::span<float> gradients() noexcept { return gradients_.span(); }
  [[nodiscard]] bool holds_parameters() const noexcept { return holds_parameters_; }
  [[nodiscard]] bool holds_gradients() const noexcept { return holds_gradients_; }
  [[nodiscard]] std::size_t offset_of(ParameterId id) const { return entry(id).offset; }
  /// Index into layout().units; with a rule for units only.
  [[nodiscard]] std::size_t unit_of(ParameterId id) const { return entry(id).unit; }
  [[nodiscard]] const Desc& format_of(ParameterId id) const { return entry(id).format; }
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

  bool holds_parameters_;
  bool holds_gradients_;
  std::vector<Entry> entries_;
  ArenaLayout layout_;
  AlignedBuffer<float> parameters_;
  AlignedBuffer<float> gradients_;
};

}  // namespace lockstep::cpu
