#include "staging_queue.hpp"

#include "lockstep/comm/element_size.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep {
namespace {

template <typename Buffer>
std::size_t bytes_of(const Buffer& buffer) noexcept {
  return buffer.count * size_of(buffer.type);
}

}  // namespace

StagingQueue::Staged StagingQueue::layout_of(const Work& work) const noexcept {
  const std::size_t from = bytes_of(work.from);
  const std::size_t to = bytes_of(work.to);
  switch (work.kind) {
    case CollectiveKind::started_reduce_scatter:
      return {.from = 0, .to = from, .bytes = from + to};
    case CollectiveKind::started_all_gather:
      return {.from = static_cast<std::size_t>(host_.rank()) * from, .to = 0, .bytes = to};
    default:
      return {.from = 0, .to = 0, .bytes = std::max(from, to)};
  }
}

std::size_t StagingQueue::start(const Work& work) {
  const Staged layout = layout_of(work);
  const std::size_t number = transfers_.take(
      work.to.count > 0 ? work.to.data : work.from.data,
      [&] {
        return Transfer{.memory = cuda_.make_pinned(layout.bytes),
                        .capacity = layout.bytes,
                        .ready = cuda_.make_event(),
                        .arrived = cuda_.make_event(),
                        .returned = cuda_.make_event(),
                        .request = {}};
      },
      [&](const Transfer& transfer) { return transfer.capacity >= layout.bytes; });
  Transfer& transfer = transfers_[number];
  transfer.state = State::leaving;
  transfer.work = work;
  cuda_.record(transfer.ready, compute_);
  cuda_.order_after(outward_.get(), transfer.ready);
  if (work.from.count > 0) {
    cuda_.copy_to_host(static_cast<std::byte*>(transfer.memory.get()) + layout.from, work.from.data,
                       bytes_of(work.from), outward_.get());
  }
  cuda_.record(transfer.arrived, outward_.get());
  order_.push_back(number);
  return number;
}

Request StagingQueue::start_on_host(const Transfer& transfer) {
  const Work& work = transfer.work;
  const Staged layout = layout_of(work);
  auto* const memory = static_cast<std::byte*>(transfer.memory.get());
  const ConstBuffer from{memory + layout.from, work.from.count, work.from.type, transfer.memory};
  const MutableBuffer to{memory + layout.to, work.to.count, work.to.type, transfer.memory};
  switch (work.kind) {
    case CollectiveKind::started_reduce_scatter:
      return host_.start_reduce_scatter_buffer(from, to, work.op);
    case CollectiveKind::started_all_gather:
      return host_.start_all_gather_buffer(from, to);
    case CollectiveKind::send:
      return host_.start_send_buffer(from, work.peer);
    case CollectiveKind::receive:
      return host_.start_receive_buffer(to, work.peer);
    default:
      return host_.start_all_reduce_buffer(to, work.op);
  }
}

void StagingQueue::advance() {
  for (; next_ < order_.size(); ++next_) {
    Transfer& transfer = transfers_[order_[next_]];
    if (!cuda_.is_done(transfer.arrived)) break;
    if (counts(transfer)) progress_->reach_one();
    transfer.request = start_on_host(transfer);
    transfer.state = State::on_host;
  }
  for (std::size_t i = 0; i < next_; ++i) {
    Transfer& transfer = transfers_[order_[i]];
    if (transfer.state != State::on_host || !host_.test(transfer.request)) continue;
    const MutableBuffer& to = transfer.work.to;
    if (to.count > 0) {
      cuda_.copy_to_device(
          to.data, static_cast<std::byte*>(transfer.memory.get()) + layout_of(transfer.work).to,
          bytes_of(to), homeward_.get());
    }
    cuda_.record(transfer.returned, homeward_.get());
    transfer.state = State::returning;
    if (counts(transfer)) progress_->complete_one();
  }
}

void StagingQueue::release(std::size_t transfer) {
  const auto place = std::find(order_.begin(), order_.end(), transfer);
  assert(place != order_.end() && place < order_.begin() + static_cast<std::ptrdiff_t>(next_));
  order_.erase(place);
  --next_;
  transfers_[transfer].work = {};
  transfers_.give_back(transfer);
}

}  // namespace lockstep
