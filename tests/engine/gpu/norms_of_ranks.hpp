#pragma once

#include "host_device.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/norm_exchange.hpp"
#include "run_in.hpp"

#include <span>
#include <thread>

namespace lockstep::gpu {

/// Sums as if all ranks of a job computed the same values, in the order of a host device's queue.
class NormsOfEqualRanks final : public NormExchange {
 public:
  NormsOfEqualRanks() = default;
  NormsOfEqualRanks(Device& device, int ranks) : device_(&device), ranks_(ranks) {}

  void sum(std::span<double> values) override { multiply(values); }
  void sum(std::span<float> values) override { multiply(values); }
  void await(FunctionRef<bool()> reached) override {
    ++awaits;
    if (peer_is_lost) fail(ExitStatus::internal, "rank 1 was lost");
    while (!reached()) std::this_thread::yield();
  }
  int queued = 0;
  int done = 0;
  int awaits = 0;
  bool peer_is_lost = false;

 private:
  template <typename T>
  void multiply(std::span<T> values) {
    ++queued;
    if (device_ == nullptr) return;
    run_in(device_->stream(), [this, values] {
      for (T& value : values) value *= static_cast<T>(ranks_);
      ++done;
    });
  }

  Device* device_ = nullptr;
  int ranks_ = 1;
};

}  // namespace lockstep::gpu
