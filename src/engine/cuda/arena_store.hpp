#pragma once

#include "device.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::cuda {

/// A network's parameters and gradients in flat arenas of the device. Convolution weights are (out,
/// kernel, kernel, in) and linear weights (out, in), with channels padded like values. With 16-bit
/// values there is also a working copy of all parameters in that type.
class ArenaStore final {
 public:
  struct Options {
    DataType type = DataType::f32;
    std::vector<ParameterId> ready;  ///< the order in which backward finishes their gradients
    std::size_t tail_size = 0;
    UnitOptions units = {};
  };
  ArenaStore(Device& device, const Graph& graph, const Options& options);

  [[nodiscard]] const ArenaLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::span<float> parameters() const noexcept {
    return {parameters_.data(), parameters_.size()};
  }
  [[nodiscard]] std::span<float> gradients() const noexcept {
    return {gradients_.data(), gradients_.size()};
  }
  /// A unit's parameters if they are held in 16 bits; else empty.
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) const noexcept;
  [[nodiscard]] bool holds_parameters() const noexcept { return units_.holds_parameters; }
  [[nodiscard]] bool holds_gradients() const noexcept { return units_.holds_gradients; }
  /// Index into layout().units, and the offset in that unit; only with a UnitRule.
  [[nodiscard]] std::size_t unit_of(ParameterId id) const { return entry(id).unit; }
  [[nodiscard]] std::size_t offset_in_unit(ParameterId id) const {
    return offset(id) - layout_.units[unit_of(id)].begin;
  }
  /// Type in which a unit's parameters are gathered.
  [[nodiscard]] DataType type_of(std::size_t unit) const {
    return units_.is_16_bit(layout_.units[unit]) ? type_ : DataType::f32;
  }
  /// In fp32; if parameters are held in 16 bits, only those of an in_fp32 unit are.
  [[nodiscard]] void* parameter(ParameterId id) const;
  [[nodiscard]] float* gradient(ParameterId id) const { return gradients_.data() + offset(id); }
  /// The parameter in the values' type, as of the last refresh().
  [[nodiscard]] void* working(ParameterId id) const;
  /// Values of the view, including padding.
  [[nodiscard]] std::size_t size(ParameterId id) const { return entry(id).size; }
  /// End of the arena prefix that is final once this parameter's gradient and all before it are.
  [[nodiscard]] std::size_t filled_after(ParameterId id) const { return entry(id).filled; }
  /// Queues the update of the working copy.
  void refresh(Device& device) const;

  // For arenas in host memory. Thread-safe.
  void to_plain(std::span<const float> view, ParameterId id, std::span<float> plain) const;
  void from_plain(std::span<const float> plain, ParameterId id, std::span<float> view) const;

 private:
  struct Entry {
    std::int64_t out = 1;  ///< shape; a vector is (1, 1, in)
    std::int64_t in = 1;
    std::int64_t area = 1;  ///< kernel^2
    std::int64_t padded_in = 1;
    std::size_t size = 0;
    std::size_t offset = 0;
    std::size_t filled = 0;
    std::size_t unit = 0;
    template <typename Visit>
    void for_each(Visit&& visit) const;
  };
  [[nodiscard]] const Entry& entry(ParameterId id) const {
    return entries_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::size_t offset(ParameterId id) const { return entry(id).offset; }

  [[nodiscard]] void* held(ParameterId id) const;

  DataType type_;
  UnitOptions units_;
  std::vector<Entry> entries_;
  ArenaLayout layout_;
  DeviceArray<float> parameters_;
  DeviceArray<float> gradients_;
  DeviceArray<std::uint16_t> working_;
  DeviceArray<std::byte> held_;  ///< replaces parameters_ and working_ if held in 16 bits
};

}  // namespace lockstep::cuda
