#include "lockstep/parallel/gradient_reducer.hpp"

#include "element_precision.hpp"
#include "register_memory.hpp"

#include <algorithm>

namespace lockstep {

GradientReducer::GradientReducer(Communicator& comm, std::span<float> arena,
                                 std::vector<Bucket> buckets, Dtype dtype, Engine* engine)
    : comm_(comm),
      arena_(arena),
      dtype_(dtype),
      owner_(engine != nullptr ? engine->arena() : nullptr),
      buckets_(std::move(buckets)),
      requests_(buckets_.size()) {
  for (std::size_t i = 0; i + 1 < buckets_.size(); ++i) boundaries_.push_back(buckets_[i].end);
  // One rank reduces nothing.
  if (comm.size() == 1) dtype_.type = ElementType::f32;
  if (dtype_.type == ElementType::f32) return;
  const Precision precision = precision_of(dtype_.type);
  cast_buffer_ = engine != nullptr ? engine->memory().make_cast_buffer(precision, dtype_.gradients)
                                   : make_host_cast_buffer(precision, dtype_.gradients);
  register_values(comm_, cast_buffer_);
}

Request GradientReducer::start(const Bucket& bucket) {
  const std::span<float> values = arena_.subspan(bucket.begin, bucket.size());
  if (!is_cast(bucket)) {
    return comm_.start_all_reduce_buffer(buffer_of(values, owner_), ReduceOp::sum);
  }
  cast_buffer_->store(values, bucket.begin);
  return comm_.start_all_reduce_buffer({.data = cast_buffer_->data(bucket.begin),
                                        .count = bucket.size(),
                                        .type = dtype_.type,
                                        .owner = cast_buffer_},
                                       ReduceOp::sum);
}

void GradientReducer::load(const Bucket& bucket) {
  if (!is_cast(bucket)) return;
  cast_buffer_->load(bucket.begin, arena_.subspan(bucket.begin, bucket.size()));
}

void GradientReducer::begin() noexcept {
  started_ = 0;
  timing_ = {};
}

void GradientReducer::gradients_ready(std::size_t filled) {
  // finish() starts the last bucket, which holds the tail.
  while (started_ + 1 < buckets_.size() && buckets_[started_].end <= filled) {
    start_next();
  }
  timing_.started_before_finish = started_;
  progress();
}

void GradientReducer::progress() {
  // One test drives all requests.
  for (std::size_t i = 0; i < started_; ++i) {
    if (!requests_[i].done()) {
      comm_.test(requests_[i]);
      break;
    }
  }
}

void GradientReducer::finish(FunctionRef<void(const Bucket&)> reduced) {
  while (started_ < buckets_.size()) start_next();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    comm_.wait(requests_[i]);
    load(buckets_[i]);
    timing_.exposed_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    reduced(buckets_[i]);
  }
}

}  // namespace lockstep
