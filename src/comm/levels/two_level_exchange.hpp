#pragma once

#include "../exchange/exchange.hpp"
#include "../reusable_blocks.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Collectives in two levels: each rank exchanges with the ranks of its node, and with the ranks of
/// other nodes that have its local rank. So all ranks of a node use the network at once, each for
/// its slice of the values. Every node has equally many ranks, with consecutive numbers.
///
/// An all-reduce is a reduce-scatter within the node, an all-reduce of a slice between nodes, and
/// an all-gather within the node. A reduce-scatter is the first two, an all-gather the last two.
class TwoLevelExchange final : public Exchange {
 public:
  struct Levels {
    /// Ranks of this node. Two exchanges, as operations end on the nodes' level at times that
    /// differ between ranks, but each exchange needs the same order on all ranks.
    std::unique_ptr<Exchange> scatter;
    std::unique_ptr<Exchange> gather;
    std::unique_ptr<Exchange> between;  ///< ranks of other nodes with this local rank
    int local_rank = 0;
    int ranks_per_node = 1;
    int nodes = 1;
    /// Largest part of an all-reduce, in bytes: parts are on different levels at the same time.
    std::size_t part_bytes = std::size_t{16} << 20;
  };
  explicit TwoLevelExchange(Levels levels);
  TwoLevelExchange(const TwoLevelExchange&) = delete;
  TwoLevelExchange& operator=(const TwoLevelExchange&) = delete;
  ~TwoLevelExchange() override;

  void add(const ExchangeOperation& operation) override;
  bool advance() override;
  [[nodiscard]] std::uint64_t ended() const noexcept override { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept override { return added_; }

 private:
  /// An operation, or a part of an all-reduce.
  struct Part {
    ExchangeOperation operation;
    bool is_last = false;         ///< of its operation
    std::byte* blocks = nullptr;  ///< this local rank's blocks of all nodes; null in an all-reduce
    std::uint64_t scattered = 0;  ///< number of operations of each level that must have ended
    std::uint64_t summed = 0;
    std::uint64_t gathered = 0;
  };
  [[nodiscard]] Part& part(std::uint64_t number) noexcept { return parts_[number % parts_.size()]; }
  void add_part(const ExchangeOperation& operation, bool is_last);
  void start_scatter(Part& part);
  void start_between(Part& part);
  void start_gather(Part& part);
  /// This rank's slice of an all-reduce: all values of a block of the node's level.
  [[nodiscard]] ExchangeOperation slice_of(const Part& part) const;

  Levels levels_;
  std::shared_ptr<ReusableBlocks> blocks_ = std::make_shared<ReusableBlocks>();
  std::vector<Part> parts_ = std::vector<Part>(64);  ///< a ring
  std::uint64_t parts_added_ = 0;
  std::uint64_t parts_between_ = 0;  ///< number of parts that have reached the nodes' level
  std::uint64_t parts_gathering_ = 0;
  std::uint64_t parts_ended_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
};

}  // namespace lockstep
