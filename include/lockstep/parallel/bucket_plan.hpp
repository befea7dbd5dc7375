#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// A range of the gradient arena that is reduced in one call.
struct Bucket {
  std::size_t begin;
  std::size_t end;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// Whether the tail shares the last gradient bucket or, if gradients are cast, has its own.
enum class TailPlace { last_bucket, separate_bucket };
[[nodiscard]] constexpr TailPlace tail_place(ElementType reduced) noexcept {
  return reduced == ElementType::f32 ? TailPlace::last_bucket : TailPlace::separate_bucket;
}

/// Cuts [0, layout.size() + tail_size) at tensor boundaries into buckets, in the order in which
/// backward fills them. Each has at least `target_bytes`, except for the last ones: each of them is
/// as large as all that follow, down to 1 MiB, since nothing hides the reduction of the last one.
/// The last bucket holds the tail.
[[nodiscard]] std::vector<Bucket> plan_buckets(const ArenaLayout& layout, std::size_t tail_size,
                                               std::size_t target_bytes,
                                               TailPlace place = TailPlace::last_bucket);

}  // namespace lockstep
