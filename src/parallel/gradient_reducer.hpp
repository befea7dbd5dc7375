#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/cast_buffer.hpp"
#include "lockstep/parallel/bucket_plan.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

class Engine;

/// Reduces the gradient arena bucket by bucket, in order.
class GradientReducer final {
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

  /// Call before a step's first start_until().
  void begin() noexcept { started_ = 0; }
  /// Starts the buckets before `end`, in order, that have not been started. Their values are final;
  /// the last bucket holds the tail.
  void start_until(std::size_t end);
  /// Continues the reductions in flight; never blocks.
  void progress();
  /// Waits until the sum of a bucket that was started is ready.
  void await(std::size_t bucket);
  [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return buckets_; }
  /// Bytes of the 16-bit buffer; 0 if gradients are reduced in fp32.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return cast_buffer_ ? 2 * dtype_.gradients : 0;
  }

 private:
  [[nodiscard]] bool is_cast(const Bucket& bucket) const noexcept {
    return dtype_.type != ElementType::f32 && bucket.end <= dtype_.gradients;
  }
  [[nodiscard]] Request start(const Bucket& bucket);
  void load(const Bucket& bucket);

  Communicator& comm_;
  std::span<float> arena_;
  Dtype dtype_;
  MemoryOwner owner_;                        ///< of the arena; null without an engine
  std::shared_ptr<CastBuffer> cast_buffer_;  ///< null in fp32
  std::vector<Bucket> buckets_;
  std::vector<Request> requests_;
  std::size_t started_ = 0;
};

}  // namespace lockstep
