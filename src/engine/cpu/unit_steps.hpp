#pragma once

#include "lockstep/engine/unit_exchange.hpp"
#include "step.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::cpu {

/// Operands of a unit's step.
struct UnitPlace {
  UnitExchange& exchange;
  std::size_t unit;
  dnnl::memory values;  ///< the unit's values
};

class StartGatherStep final : public Step {
 public:
  explicit StartGatherStep(UnitPlace place) : place_(std::move(place)) {}
  void run() override { place_.exchange.start_gather(place_.unit, values_); }
  [[nodiscard]] std::string_view name() const noexcept override { return "start of a gather"; }
  void bind() override;

 private:
  UnitPlace place_;
  std::span<std::byte> values_;
};

class StartReductionStep final : public Step {
 public:
  explicit StartReductionStep(UnitPlace place) : place_(std::move(place)) { bind(); }
  void run() override { place_.exchange.start_reduction(place_.unit, values_); }
  [[nodiscard]] std::string_view name() const noexcept override { return "start of a reduction"; }
  void bind() override;

 private:
  UnitPlace place_;
  std::span<const float> values_;
};

class AwaitGatherStep final : public Step {
 public:
  AwaitGatherStep(UnitExchange& exchange, std::size_t unit) : exchange_(exchange), unit_(unit) {}
  void run() override { exchange_.await_gather(unit_); }
  [[nodiscard]] std::string_view name() const noexcept override { return "wait for a gather"; }

 private:
  UnitExchange& exchange_;
  std::size_t unit_;
};

class AwaitReductionStep final : public Step {
 public:
  AwaitReductionStep(UnitExchange& exchange, std::size_t unit) : exchange_(exchange), unit_(unit) {}
  void run() override { exchange_.await_reduction(unit_); }
  [[nodiscard]] std::string_view name() const noexcept override { return "wait for a reduction"; }

 private:
  UnitExchange& exchange_;
  std::size_t unit_;
};

/// Zeroes the gaps between tensors, in memory that other steps have used.
class ClearGapsStep final : public Step {
 public:
  /// `gaps`: begin and end, in values.
  ClearGapsStep(dnnl::memory values, std::vector<std::pair<std::size_t, std::size_t>> gaps)
      : memory_(std::move(values)), gaps_(std::move(gaps)) {}
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "clearing of gaps"; }
  void bind() override;

 private:
  dnnl::memory memory_;
  std::vector<std::pair<std::size_t, std::size_t>> gaps_;
  float* values_ = nullptr;
};

}  // namespace lockstep::cpu
