#include "lockstep/parallel/gradient_reducer.hpp"

namespace lockstep {

GradientReducer::GradientReducer(Communicator& comm, std::span<float> arena,
                                 std::vector<Bucket> buckets)
    : comm_(comm), arena_(arena), buckets_(std::move(buckets)), requests_(buckets_.size()) {}

void GradientReducer::begin() noexcept {
  started_ = 0;
  timing_ = {};
}

void GradientReducer::gradients_ready(std::size_t filled) {
  // The last bucket waits for the tail, which finish() sends.
  while (started_ + 1 < buckets_.size() && buckets_[started_].end <= filled) {
    const Bucket& bucket = buckets_[started_];
    requests_[started_] = comm_.start_all_reduce(arena_.subspan(bucket.begin, bucket.size()));
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
    const Bucket& bucket = buckets_[started_];
    requests_[started_] = comm_.start_all_reduce(arena_.subspan(bucket.begin, bucket.size()));
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    comm_.wait(requests_[i]);
    timing_.exposed_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    reduced(buckets_[i]);
  }
}

}  // namespace lockstep
