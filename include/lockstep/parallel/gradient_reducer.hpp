#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/bucket_plan.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Reduces the gradient arena bucket by bucket while backward runs. It observes backward, starts
/// a bucket as soon as its last gradient is ready, and drives the progress of requests in flight
/// after every primitive. finish() starts the last bucket, which holds the tail.
class GradientReducer final : public BackwardObserver {
 public:
  /// Communication data type: buckets within [0, gradients) are reduced in `type`; bf16 and f16
  /// halve the bytes, and each addition rounds. All other buckets are reduced in fp32.
  struct Dtype {
    ElementType type = ElementType::f32;
    std::size_t gradients = 0;
  };
  /// `arena` is the gradients and the tail, in `engine`'s memory, or in host memory if `engine` is
  /// null; it and `comm` outlive the reducer.
  GradientReducer(Communicator& comm, std::span<float> arena, std::vector<Bucket> buckets,
                  Dtype dtype, Engine* engine = nullptr);
  GradientReducer(Communicator& comm, std::span<float> arena, std::vector<Bucket> buckets)
      : GradientReducer(comm, arena, std::move(buckets), Dtype{}) {}
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Call before backward of the last micro-step.
  void begin() noexcept;
  void gradients_ready(std::size_t filled) override;
  /// Continues the reductions in flight.
  void progress();
  /// The ends of all buckets but the last.
  [[nodiscard]] std::span<const std::size_t> boundaries() const noexcept override {
    return boundaries_;
  }
  /// Starts the remaining buckets (the tail must be written by now) and calls `reduced(bucket)`
  /// for every bucket, in order, when its sum is ready.
  void finish(FunctionRef<void(const Bucket&)> reduced);

  struct Timing {
    double exposed_seconds = 0;             ///< time finish() waited
    std::size_t started_before_finish = 0;  ///< buckets started while backward still ran
  };
  [[nodiscard]] const Timing& timing() const noexcept { return timing_; }
  [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return buckets_; }
  /// Bytes of the 16-bit buffer; 0 if gradients are reduced in fp32.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return cast_buffer_ ? 2 * dtype_.gradients : 0;
  }

 private:
  [[nodiscard]] bool is_cast(const Bucket& bucket) const noexcept {
    return dtype_.type != ElementType::f32 && bucket.end <= dtype_.gradients;
  }
  void start_next() {
    requests_[started_] = start(buckets_[started_]);
    ++started_;
  }
  [[nodiscard]] Request start(const Bucket& bucket);
  void load(const Bucket& bucket);

  Communicator& comm_;
  std::span<float> arena_;
  Dtype dtype_;
  MemoryOwner owner_;                        ///< of the arena; null without an engine
  std::shared_ptr<CastBuffer> cast_buffer_;  ///< null in fp32
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> boundaries_;
  std::vector<Request> requests_;
  std::size_t started_ = 0;
  Timing timing_;
};

/// An observer for micro-steps whose gradients are not reduced yet.
class NoReduction final : public BackwardObserver {
 public:
  void gradients_ready(std::size_t) override {}
};

}  // namespace lockstep
