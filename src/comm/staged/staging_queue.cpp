#include "staging_queue.hpp"

#include "../element_size.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep {

StagingQueue::~StagingQueue() {
  // Left in the middle of a reduction, after an error: the host's communicator may still write.
  for (std::size_t i = 0; i < next_; ++i) {
    Transfer& transfer = transfers_[order_[i]];
    if (transfer.stage == Stage::reducing) static_cast<void>(transfer.memory.release());
  }
}

std::size_t StagingQueue::start(MutableBuffer buffer, ReduceOp op) {
  const std::size_t bytes = buffer.count * size_of(buffer.type);
  const std::size_t number = transfers_.take(
      buffer.data,
      [&] {
        return Transfer{.memory = cuda_.make_pinned(bytes),
                        .capacity = bytes,
                        .ready = cuda_.make_event(),
                        .arrived = cuda_.make_event(),
                        .returned = cuda_.make_event(),
                        .reduction = {}};
      },
      [&](const Transfer& transfer) { return transfer.capacity >= bytes; });
  Transfer& transfer = transfers_[number];
  transfer.stage = Stage::leaving;
  transfer.buffer = buffer;
  transfer.op = op;
  cuda_.record(transfer.ready, compute_);
  cuda_.order_after(outward_.get(), transfer.ready);
  cuda_.copy_to_host(transfer.memory.get(), buffer.data, bytes, outward_.get());
  cuda_.record(transfer.arrived, outward_.get());
  order_.push_back(number);
  return number;
}

void StagingQueue::advance() {
  for (; next_ < order_.size(); ++next_) {
    Transfer& transfer = transfers_[order_[next_]];
    if (!cuda_.is_done(transfer.arrived)) break;
    transfer.reduction = host_.start_all_reduce_buffer(copy_of(transfer), transfer.op);
    transfer.stage = Stage::reducing;
  }
  for (std::size_t i = 0; i < next_; ++i) {
    Transfer& transfer = transfers_[order_[i]];
    if (transfer.stage != Stage::reducing || !host_.test(transfer.reduction)) continue;
    const MutableBuffer sums = copy_of(transfer);
    cuda_.copy_to_device(transfer.buffer.data, sums.data, sums.count * size_of(sums.type),
                         homeward_.get());
    cuda_.record(transfer.returned, homeward_.get());
    transfer.stage = Stage::returning;
  }
}

void StagingQueue::release(std::size_t transfer) {
  const auto place = std::find(order_.begin(), order_.end(), transfer);
  assert(place != order_.end() && place < order_.begin() + static_cast<std::ptrdiff_t>(next_));
  order_.erase(place);
  --next_;
  transfers_.give_back(transfer);
}

}  // namespace lockstep
