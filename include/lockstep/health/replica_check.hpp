#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/parallel/gradient_sync.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

/// The shard this rank holds, and the size of its shard group. Ranks at the same place in different
/// groups hold the same shard.
struct KeptShard {
  const GradientSync* sync = nullptr;  ///< null: no rank holds only a shard
  int ranks = 1;
};

/// Compares the replicated state of ranks bit by bit; it differs only after a fault in memory, a
/// device or the program. Checks running statistics, and parameters (32 or 16 bits) if all ranks
/// hold them unsharded, else the shards that several ranks keep.
class ReplicaCheck final {
 public:
  /// `hosts` by rank. All references outlive the object.
  ReplicaCheck(Engine& engine, Communicator& comm, std::vector<std::string> hosts,
               const KeptShard& shard = {});

  /// Collective; call after `step`. If replicas differ, returns the same Error(internal) on all
  /// ranks. It names the ranks whose bits differ from the majority of their replicas, their hosts,
  /// the tensors, and the step of the last check without a difference (the run's start, if none).
  [[nodiscard]] std::optional<Error> run(std::int64_t step);

 private:
  enum class Scope { all, shard };  ///< compared over all ranks, or over those with the same shard
  /// A tensor that this rank holds, or its shard, with the gap after it.
  struct Held {
    const std::string* name;
    std::span<const float> values;
    Scope scope;
    bool on_host;
  };
  [[nodiscard]] std::vector<Held> held() const;
  [[nodiscard]] std::vector<Held> held_parameters() const;
  /// A range of an arena, cut between tensors, and its values: a float each, or a float for two
  /// 16-bit values.
  struct Run {
    std::size_t begin;
    std::size_t end;
    std::span<const float> values;
    [[nodiscard]] std::size_t place(std::size_t at) const noexcept {
      return (at - begin) * values.size() / (end - begin);
    }
  };
  /// `runs` cover `layout`.
  [[nodiscard]] std::vector<Held> tensors_in(const ArenaLayout& layout,
                                             const std::vector<Run>& runs, Scope scope) const;
  [[nodiscard]] std::uint32_t checksum(const Held& held, std::uint32_t crc);
  /// `sums` by rank; those of `ranks` should be equal.
  [[nodiscard]] std::optional<Error> compare(const std::vector<int>& ranks,
                                             std::span<const std::uint64_t> sums, Scope scope,
                                             std::int64_t step);
  [[nodiscard]] Error difference(const std::vector<int>& ranks, const std::vector<int>& wrong,
                                 Scope scope, std::int64_t step);
  [[nodiscard]] std::string differing_tensors(const std::vector<int>& ranks, Scope scope);

  Engine& engine_;
  Communicator& comm_;
  std::vector<std::string> hosts_;
  KeptShard shard_;
  std::vector<Held> held_;
  AlignedBuffer<float> buffer_;        ///< host copy of a range of a tensor
  std::int64_t last_equal_step_ = -1;  ///< -1: before the first check
};

/// The ranks whose checksum is not the majority's, ascending; empty if all are equal. All ranks if
/// no checksum has a majority. Pure.
[[nodiscard]] std::vector<int> differing_ranks(std::span<const std::uint64_t> checksums);

}  // namespace lockstep
