#include "lockstep/parallel/shard_group.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

int shard_group_size(const Config& config, const ProcessGrid& grid, Communicator& comm) {
  if (config.shard != ShardMode::hybrid) return comm.size();
  const auto asked = static_cast<int>(config.shard_group);
  const int size = asked > 0 ? asked : grid.local_size;
  if (asked == 0) {
    // A group is a node's ranks: nodes need equally many, with consecutive rank numbers.
    const int least = comm.all_reduce_value(grid.local_size, ReduceOp::min);
    const int most = comm.all_reduce_value(grid.local_size, ReduceOp::max);
    const int apart =
        comm.all_reduce_value(grid.rank % size == grid.local_rank ? 0 : 1, ReduceOp::max);
    if (least != most || apart != 0) {
      fail(ExitStatus::usage,
           "--shard hybrid needs as many ranks on each node, one after another (there are {} to {} "
           "a node); place them so, or set --shard-group",
           least, most);
    }
  }
  if (comm.size() % size != 0) {
    fail(ExitStatus::usage,
         "--shard-group {} does not divide {} ranks (groups must be equal); take another number",
         size, comm.size());
  }
  return size;
}

}  // namespace lockstep
