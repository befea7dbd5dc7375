#include "two_level_exchange.hpp"

#include "../keep_until_exit.hpp"
#include "lockstep/comm/element_size.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

TwoLevelExchange::TwoLevelExchange(Levels levels) : levels_(std::move(levels)) {}

TwoLevelExchange::~TwoLevelExchange() {
  // After a failure, messages may remain in flight forever.
  if (!is_idle()) keep_until_exit(blocks_);
}

void TwoLevelExchange::add(const ExchangeOperation& operation) {
  if (!operation.reduces || !operation.gathers) {
    add_part(operation, true);
  } else {
    const std::size_t most = levels_.part_bytes / size_of(operation.type);
    for (std::size_t at = 0; at < operation.total; at += most) {
      ExchangeOperation part = operation;
      part.from += at * size_of(operation.type);
      part.to += at * size_of(operation.type);
      part.total = std::min(most, operation.total - at);
      const auto ranks = static_cast<std::size_t>(levels_.ranks_per_node);
      part.count = (part.total + ranks - 1) / ranks;
      add_part(part, at + most >= operation.total);
    }
  }
  ++added_;
  advance();
}

void TwoLevelExchange::add_part(const ExchangeOperation& operation, bool is_last) {
  if (parts_added_ - parts_ended_ == parts_.size()) {
    std::vector<Part> more(2 * parts_.size());
    for (std::uint64_t at = parts_ended_; at < parts_added_; ++at)
      more[at % more.size()] = part(at);
    parts_ = std::move(more);
  }
  Part& next = part(parts_added_);
  next = {.operation = operation, .is_last = is_last};
  ++parts_added_;
  start_scatter(next);
}

void TwoLevelExchange::start_scatter(Part& part) {
  const ExchangeOperation& operation = part.operation;
  const auto ranks = static_cast<std::size_t>(levels_.ranks_per_node);
  const auto nodes = static_cast<std::size_t>(levels_.nodes);
  const std::size_t bytes = operation.count * size_of(operation.type);
  if (!operation.reduces || !operation.gathers) part.blocks = blocks_->take(nodes * bytes);
  if (operation.reduces && operation.gathers) {
    ExchangeOperation scatter = operation;
    scatter.gathers = false;
    scatter.to += static_cast<std::size_t>(levels_.local_rank) * bytes;
    levels_.scatter->add(scatter);
  } else if (operation.reduces) {
    for (std::size_t node = 0; node < nodes; ++node) {
      ExchangeOperation scatter = operation;
      scatter.from += node * ranks * bytes;
      scatter.to = part.blocks + node * bytes;
      scatter.total = ranks * operation.count;
      levels_.scatter->add(scatter);
    }
  }
  part.scattered = levels_.scatter->added();
}

ExchangeOperation TwoLevelExchange::slice_of(const Part& part) const {
  ExchangeOperation slice = part.operation;
  const std::size_t begin = static_cast<std::size_t>(levels_.local_rank) * slice.count;
  slice.to += begin * size_of(slice.type);
  slice.from = slice.to;
  slice.total = begin < slice.total ? std::min(slice.count, slice.total - begin) : 0;
  return slice;
}

void TwoLevelExchange::start_between(Part& part) {
  const auto nodes = static_cast<std::size_t>(levels_.nodes);
  ExchangeOperation between = part.operation;
  if (between.reduces && between.gathers) {
    between = slice_of(part);
    between.count = (between.total + nodes - 1) / nodes;
  } else {
    if (between.reduces) between.from = part.blocks;
    if (between.gathers) between.to = part.blocks;
    between.total = nodes * between.count;
  }
  levels_.between->add(between);
  part.summed = levels_.between->added();
}

void TwoLevelExchange::start_gather(Part& part) {
  const ExchangeOperation& operation = part.operation;
  ExchangeOperation gather = operation;
  gather.reduces = false;
  if (operation.reduces && operation.gathers) {
    gather.from = slice_of(part).to;
    levels_.gather->add(gather);
  } else if (operation.gathers) {
    const auto ranks = static_cast<std::size_t>(levels_.ranks_per_node);
    const std::size_t bytes = operation.count * size_of(operation.type);
    gather.total = ranks * operation.count;
    for (int node = 0; node < levels_.nodes; ++node) {
      gather.from = part.blocks + static_cast<std::size_t>(node) * bytes;
      gather.to = operation.to + static_cast<std::size_t>(node) * ranks * bytes;
      levels_.gather->add(gather);
    }
  }
  part.gathered = levels_.gather->added();
}

bool TwoLevelExchange::advance() {
  bool any = false;
  for (bool moved = parts_ended_ < parts_added_; moved;) {
    moved = levels_.scatter->advance();
    for (; parts_between_ < parts_added_; ++parts_between_) {
      if (levels_.scatter->ended() < part(parts_between_).scattered) break;
      start_between(part(parts_between_));
      moved = true;
    }
    moved |= levels_.between->advance();
    for (; parts_gathering_ < parts_between_; ++parts_gathering_) {
      if (levels_.between->ended() < part(parts_gathering_).summed) break;
      start_gather(part(parts_gathering_));
      moved = true;
    }
    moved |= levels_.gather->advance();
    for (; parts_ended_ < parts_gathering_; ++parts_ended_) {
      Part& oldest = part(parts_ended_);
      if (levels_.gather->ended() < oldest.gathered) break;
      blocks_->give_back(std::exchange(oldest.blocks, nullptr));
      if (oldest.is_last) ++ended_;
      moved = true;
    }
    any |= moved;
  }
  return any;
}

}  // namespace lockstep
