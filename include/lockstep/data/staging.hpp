#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/shard_copies.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Which files to copy to storage that may be too small for all of them.
struct StagePlan {
  std::vector<std::size_t> chosen;  ///< in copy order
  std::uint64_t bytes = 0;          ///< of the chosen files
  std::uint64_t left_out_bytes = 0;
};
/// Pure. Goes through the files once, starting at one that depends on the node, and chooses each
/// that fits into what remains of `free` bytes. So nodes do not all read from one server at a time.
[[nodiscard]] StagePlan plan_staging(std::span<const std::uint64_t> sizes, std::uint64_t free,
                                     const ProcessGrid& grid);

struct StagingOptions {
  std::string directory;   ///< node-local; created if missing
  std::string job;         ///< job name, part of the directory's name
  std::vector<int> cores;  ///< cores for the copy thread; empty: the caller's
};

/// Copies of shards on node-local storage. The first rank of each node copies in a background
/// thread, into a new directory below `directory` that only this job uses. Each copy is read back,
/// verified and renamed into place; then all ranks of the node read it. Shards that do not fit or
/// do not verify are still read from their original place.
///
/// The destructor removes the directory. A killed job leaves its directory behind; the next job on
/// the node removes it once it can take the file lock that the killed job held.
class Staging final : public ShardCopies {
 public:
  /// Collective. Error(cannot_write) on all ranks if any node cannot create its directory;
  /// Error(usage) if the directory is in memory, of which the copies need more than is free.
  Staging(const StagingOptions& options, std::vector<ShardToCopy> shards, const ProcessGrid& grid,
          Communicator& comm);
  ~Staging() override;

  [[nodiscard]] bool ready(std::size_t shard) const noexcept override;
  [[nodiscard]] std::string path(std::size_t shard) const override;

  /// One line per node that lacks space for all shards; the same on all ranks.
  [[nodiscard]] const std::vector<std::string>& shortages() const noexcept { return shortages_; }

  /// One line per node whose copies are in memory, with what they need; the same on all ranks.
  [[nodiscard]] const std::vector<std::string>& memory() const noexcept { return memory_; }

  struct News {
    bool bad = false;
    std::string text;
  };
  /// Messages of the copy thread since the last call; empty on ranks that do not copy.
  [[nodiscard]] std::vector<News> take_news();

 private:
  class Directory;
  class Board;
  class Copier;

  std::vector<ShardToCopy> shards_;
  std::string path_;
  std::vector<std::string> shortages_;
  std::vector<std::string> memory_;
  std::unique_ptr<Directory> directory_;  ///< null except on the node's first rank
  std::unique_ptr<Board> board_;          ///< null if nothing fits on this node
  std::unique_ptr<Copier> copier_;        ///< like directory_; last, so stopped first
};

}  // namespace lockstep
