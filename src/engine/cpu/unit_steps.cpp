#include "unit_steps.hpp"

#include <algorithm>

namespace lockstep::cpu {
namespace {

std::span<float> values_of(const dnnl::memory& memory) {
  return {static_cast<float*>(memory.get_data_handle()), padded_size(memory.get_desc())};
}

}  // namespace

void StartGatherStep::bind() {
  values_ = {static_cast<std::byte*>(place_.values.get_data_handle()),
             place_.values.get_desc().get_size()};
}

void StartReductionStep::bind() {
  values_ = values_of(place_.values);
}

void ClearGapsStep::bind() {
  values_ = values_of(memory_).data();
}

void ClearGapsStep::run() {
  for (const auto& [begin, end] : gaps_) std::fill(values_ + begin, values_ + end, 0.0F);
}

}  // namespace lockstep::cpu
