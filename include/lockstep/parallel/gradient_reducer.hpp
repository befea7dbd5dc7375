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

/// Reduces the gradient arena bucket by bucket while backward goes on. As observer of backward it
/// starts a bucket as soon as its last gradient is there, and lets running requests progress
/// after every primitive. The last bucket, with the tail, is started by finish().
class GradientReducer final : public BackwardObserver {
 public:
  /// Data type of the communication: buckets within [0, gradients) are reduced as `type`; bf16 and
  /// f16 halve the bytes, and each addition rounds. All other buckets are reduced in fp32.
  struct Dtype {
    ElementType type = ElementType::f32;
    std::size_t gradients = 0;
  };
  /// `arena` is gradients with the tail, in `engine`'s memory or, without one, in the host's; it
  /// and `comm` outlive the reducer.
  GradientReducer(Communicator& comm, std::span<float> arena, std::vector<Bucket> buckets,
                  Dtype dtype, Engine* engine = nullptr);
  GradientReducer(Communicator& comm, std::span<float> arena, std::vector<Bucket> buckets)
      : GradientReducer(comm, arena, std::move(buckets), Dtype{}) {}
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  /// Where reductions are still in flight, as after an error, the engine's arenas and the 16-bit
  /// buffer are kept until the process ends.
  ~GradientReducer() override;

  /// Before backward of the last micro-step.
  void begin() noexcept;
  void gradients_ready(std::size_t filled) override;
  /// The ends of all buckets but the last.
  [[nodiscard]] std::span<const std::size_t> boundaries() const noexcept override {
    return boundaries_;
  }
  /// Starts what is left (the tail must be written now) and calls `reduced(bucket)` for every
  /// bucket, in order, as its sum is there.
  void finish(FunctionRef<void(const Bucket&)> reduced);

  struct Timing {
    double exposed_seconds = 0;             ///< time finish() waited
    std::size_t started_before_finish = 0;  ///< buckets under way while backward still ran
  };
  [[nodiscard]] const Timing& timing() const noexcept { return timing_; }
  [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return buckets_; }
  /// Bytes of the 16-bit buffer; 0 where gradients are reduced in fp32.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return cast_buffer_ ? 2 * dtype_.gradients : 0;
  }

 private:
  [[nodiscard]] bool is_cast(const Bucket& bucket) const noexcept {
    return dtype_.type != ElementType::f32 && bucket.end <= dtype_.gradients;
  }
  void start_next();
  [[nodiscard]] Request start(const Bucket& bucket);
  void load(const Bucket& bucket);

  Communicator& comm_;
  std::span<float> arena_;
  Dtype dtype_;
  std::shared_ptr<const void> owner_;        ///< of the arena; null without an engine
  std::shared_ptr<CastBuffer> cast_buffer_;  ///< null in fp32
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> boundaries_;
  std::vector<Request> requests_;
  std::size_t started_ = 0;
  bool start_failed_ = false;  ///< part of a bucket may be under way
  Timing timing_;
};

/// An observer for micro-steps whose gradients are not reduced yet.
class NoReduction final : public BackwardObserver {
 public:
  void gradients_ready(std::size_t) override {}
};

}  // namespace lockstep
