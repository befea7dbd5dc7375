#include "lockstep/parallel/gradient_reducer.hpp"

namespace lockstep {
namespace {

template <typename T>
void narrow(std::span<const float> from, std::uint16_t* to) noexcept {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = T(from[i]).bits;
}

template <typename T>
void widen(const std::uint16_t* from, std::span<float> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    value.bits = from[i];
    to[i] = float{value};
  }
}

}  // namespace

GradientReducer::GradientReducer(Communicator& comm, std::span<float> arena,
                                 std::vector<Bucket> buckets, Wire wire)
    : comm_(comm),
      arena_(arena),
      wire_(wire),
      buckets_(std::move(buckets)),
      requests_(buckets_.size()) {
  // Nothing travels from a rank alone.
  if (comm.size() == 1) wire_.type = ElementType::f32;
  if (wire_.type != ElementType::f32) narrow_ = AlignedBuffer<std::uint16_t>(wire_.gradients);
}

Request GradientReducer::start(const Bucket& bucket) {
  const std::span<float> values = arena_.subspan(bucket.begin, bucket.size());
  if (!is_narrow(bucket)) return comm_.start_all_reduce(values);
  std::uint16_t* const travelling = narrow_.data() + bucket.begin;
  if (wire_.type == ElementType::bf16) {
    narrow<Bfloat16>(values, travelling);
  } else {
    narrow<Float16>(values, travelling);
  }
  return comm_.start_all_reduce_buffer(
      {.data = travelling, .count = bucket.size(), .type = wire_.type}, ReduceOp::sum);
}

void GradientReducer::widen(const Bucket& bucket) {
  if (!is_narrow(bucket)) return;
  const std::span<float> values = arena_.subspan(bucket.begin, bucket.size());
  const std::uint16_t* const travelled = narrow_.data() + bucket.begin;
  if (wire_.type == ElementType::bf16) {
    lockstep::widen<Bfloat16>(travelled, values);
  } else {
    lockstep::widen<Float16>(travelled, values);
  }
}

void GradientReducer::begin() noexcept {
  started_ = 0;
  timing_ = {};
}

void GradientReducer::gradients_ready(std::size_t filled) {
  // The last bucket waits for the tail, which finish() sends.
  while (started_ + 1 < buckets_.size() && buckets_[started_].end <= filled) {
    requests_[started_] = start(buckets_[started_]);
    ++started_;
  }
  timing_.started_before_finish = started_;
  // MPI moves on only when it is called; one test lets all requests progress.
  for (std::size_t i = 0; i < started_; ++i) {
    if (!requests_[i].done()) {
      comm_.test(requests_[i]);
      break;
    }
  }
}

void GradientReducer::finish(const std::function<void(const Bucket&)>& reduced) {
  for (; started_ < buckets_.size(); ++started_) {
    requests_[started_] = start(buckets_[started_]);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    comm_.wait(requests_[i]);
    widen(buckets_[i]);
    timing_.exposed_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    reduced(buckets_[i]);
  }
}

}  // namespace lockstep
