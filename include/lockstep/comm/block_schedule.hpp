#pragma once

#include <vector>

namespace lockstep {

/// How the values of a collective travel between ranks, as blocks: block r is the one whose sum
/// rank r receives in a reduce-scatter, and the one that it contributes to an all-gather.
enum class BlockSchedule {
  /// Recursive halving for any number of ranks: ceil(log2(ranks)) rounds. For a power of two it
  /// moves the bytes of Rabenseifner's algorithm. After J. L. Träff, "Optimal, Non-pipelined
  /// Reduce-scatter and Allreduce Algorithms", arXiv:2410.14234.
  halving,
  /// One block per round to the next rank: ranks - 1 rounds.
  ring,
};

/// Ring for up to 8 ranks, where it is the faster one, else halving, which has fewer rounds.
[[nodiscard]] BlockSchedule choose_schedule(int ranks);
/// Rounds of a reduce-scatter or an all-gather.
[[nodiscard]] int rounds_of(BlockSchedule schedule, int ranks);

/// `count` blocks from `first` on; after the last block comes block 0.
struct BlockRange {
  int first = 0;
  int count = 0;
};

/// What one rank sends and receives in one round.
struct BlockRound {
  int to = 0;    ///< rank that receives `sends`
  int from = 0;  ///< rank that sends `receives`
  BlockRange sends;
  BlockRange receives;
};

/// Rounds of one rank in a reduce-scatter; it adds what it receives to its own values. Over all
/// rounds each rank sends and receives ranks - 1 blocks, the optimum. Pure.
[[nodiscard]] std::vector<BlockRound> reduce_scatter_rounds(BlockSchedule schedule, int rank,
                                                            int ranks);
/// Rounds of one rank in an all-gather: those of the reduce-scatter backwards. Pure.
[[nodiscard]] std::vector<BlockRound> all_gather_rounds(BlockSchedule schedule, int rank,
                                                        int ranks);

}  // namespace lockstep
