#pragma once

#include "lockstep/core/targets.hpp"
#include "sample_values.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

/// The targets of a batch on the device, as SampleValues.
class DeviceTargets final {
 public:
  DeviceTargets() = default;
  DeviceTargets(DeviceAllocator& memory, std::size_t samples)
      : labels_(memory, samples), mixes_(memory, samples) {}
  [[nodiscard]] Targets get() const noexcept {
    return {.labels = labels_.data(), .mixes = mixes_.data()};
  }
  template <typename Copy>
  void load(const Targets& from, std::size_t samples, const Copy& copy) {
    labels_.load(from.labels, samples, copy);
    mixes_.load(from.mixes, samples, copy);
  }

 private:
  SampleValues<std::int32_t> labels_;
  SampleValues<ImageMix> mixes_;
};

}  // namespace lockstep::gpu
