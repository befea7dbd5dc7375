#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The shard this rank holds, and the size of its shard group; ranks with the same shard
/// of each such group keep the same part.
struct KeptParts {
  ParallelState* state = nullptr;  ///< null: every rank keeps the whole
  int ranks = 1;
};

/// Compares what ranks hold alike, the same bits everywhere unless a memory, a device or a program
/// failed: running statistics and the parameters, where all ranks hold them, in 32 or 16 bits; else
/// the parts that several ranks keep.
class ReplicaCheck final {
 public:
  /// `hosts` by rank. Everything outlives it.
  ReplicaCheck(Engine& engine, Communicator& comm, std::vector<std::string> hosts,
               const KeptParts& parts = {});

  /// Collective; `step` has just been taken. Where replicas differ an Error(internal), given to all
  /// ranks alike, that names the ranks whose bits are not those of most that hold the same, with
  /// their hosts, the tensors, and the step of the last check that found all alike (that of the
  /// run's begin, before one).
  [[nodiscard]] std::optional<Error> run(std::int64_t step);

 private:
  enum class Scope { all, part };  ///< compared by all ranks, or by those that keep the same part
  /// A tensor that ranks hold, or its part, with the gap behind it.
  struct Held {
    const std::string* name;
    std::span<const float> values;
    Scope scope;
    bool on_host;
  };
  [[nodiscard]] std::vector<Held> held() const;
  [[nodiscard]] std::vector<Held> held_parameters() const;
  /// A run of an arena's layout, cut between tensors, and its values: as many, or half as many
  /// pairs of 16 bits.
  struct Run {
    std::size_t begin;
    std::size_t end;
    std::span<const float> values;
    [[nodiscard]] std::size_t place(std::size_t at) const noexcept {
      return (at - begin) * values.size() / (end - begin);
    }
  };
  /// `runs` hold all of `layout`.
  [[nodiscard]] std::vector<Held> tensors_in(const ArenaLayout& layout,
                                             const std::vector<Run>& runs, Scope scope) const;
  [[nodiscard]] std::uint32_t checksum(const Held& held, std::uint32_t crc);
  /// `sums` by rank, of `ranks` that should be alike.
  [[nodiscard]] std::optional<Error> compare(const std::vector<int>& ranks,
                                             std::span<const std::uint64_t> sums, Scope scope,
                                             std::int64_t step);
  [[nodiscard]] Error difference(const std::vector<int>& ranks, const std::vector<int>& wrong,
                                 Scope scope, std::int64_t step);
  [[nodiscard]] std::string differing_tensors(const std::vector<int>& ranks, Scope scope);

  Engine& engine_;
  Communicator& comm_;
  std::vector<std::string> hosts_;
  KeptParts parts_;
  std::vector<Held> held_;
  AlignedBuffer<float> piece_;
  std::int64_t alike_at_ = -1;  ///< -1: before the first check
};

/// Pure: the ranks whose checksum is not that of most, ascending; empty where all are alike. Where
/// no value is that of more than half of the ranks, all of them.
[[nodiscard]] std::vector<int> differing_ranks(std::span<const std::uint64_t> checksums);

}  // namespace lockstep
