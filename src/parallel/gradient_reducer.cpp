#include "gradient_reducer.hpp"

#include "element_precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "register_memory.hpp"

#include <utility>

namespace lockstep {

GradientReducer::GradientReducer(Communicator& comm, std::span<float> arena,
                                 std::vector<Bucket> buckets, Dtype dtype, Engine* engine)
    : comm_(comm),
      arena_(arena),
      dtype_(dtype),
      owner_(engine != nullptr ? engine->arena() : nullptr),
      buckets_(std::move(buckets)),
      requests_(buckets_.size()) {
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

void GradientReducer::start_until(std::size_t end) {
  for (; started_ < end; ++started_) requests_[started_] = start(buckets_[started_]);
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

void GradientReducer::await(std::size_t bucket) {
  comm_.wait(requests_[bucket]);
  load(buckets_[bucket]);
}

}  // namespace lockstep
