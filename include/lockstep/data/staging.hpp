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

/// Which of some files are copied to a place too small for all of them.
struct StagePlan {
  std::vector<std::size_t> chosen;  ///< in the order they are copied
  std::uint64_t bytes = 0;          ///< of those
  std::uint64_t left_out_bytes = 0;
};
/// Pure: in order, each file that fits into what is left of `free` bytes.
[[nodiscard]] StagePlan plan_staging(std::span<const std::uint64_t> sizes, std::uint64_t free);

struct StagingOptions {
  std::string directory;   ///< of the node's own; created where it is not there
  std::string job;         ///< what names the job in the directory's name
  std::vector<int> cores;  ///< where the copying thread may run; empty: as the caller
};

/// Copies of shards on storage of the node's own. The first rank of each node copies, in a
/// background thread, into a new directory below `directory` that is this job's alone; a copy is
/// read back and verified, renamed into place, and from then on read by all ranks of the node.
/// What does not fit, or does not verify, goes on being read where it was.
///
/// The directory goes with this object. A job that was killed leaves it; the next job on the node
/// removes it, by a file lock that dies with its holder.
class Staging final : public ShardCopies {
 public:
  /// Collective. Error(cannot_write) on all ranks where a node's directory cannot be made.
  Staging(const StagingOptions& options, std::vector<ShardToCopy> shards, const ProcessGrid& grid,
          Communicator& comm);
  ~Staging() override;

  [[nodiscard]] bool ready(std::size_t shard) const noexcept override;
  [[nodiscard]] std::string path(std::size_t shard) const override;

  /// A line for each node that has no room for all, on all ranks alike.
  [[nodiscard]] const std::vector<std::string>& shortages() const noexcept { return shortages_; }

  struct News {
    bool bad = false;
    std::string text;
  };
  /// What the copying thread has to say since the last call; nothing on ranks that do not copy.
  [[nodiscard]] std::vector<News> take_news();

 private:
  class Directory;
  class Board;
  class Copier;

  std::vector<ShardToCopy> shards_;
  std::string path_;
  std::vector<std::string> shortages_;
  std::unique_ptr<Directory> directory_;  ///< of the node's first rank
  std::unique_ptr<Board> board_;          ///< null where nothing fits on this node
  std::unique_ptr<Copier> copier_;  ///< of the node's first rank; stops before its directory goes
};

}  // namespace lockstep
