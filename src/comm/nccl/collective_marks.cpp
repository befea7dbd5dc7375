#include "collective_marks.hpp"

namespace lockstep {

CollectiveMarks::CollectiveMarks(const CudaCalls& cuda, DeviceProgress* progress)
    : cuda_(cuda), progress_(progress) {
  if (progress == nullptr) return;
  marks_.reserve(most);
  for (std::size_t i = 0; i < most; ++i) {
    marks_.push_back({.before = cuda.make_event(), .after = cuda.make_event()});
  }
}

void CollectiveMarks::begin(CudaStream stream) {
  if (progress_ == nullptr) return;
  poll();
  const std::uint64_t number = progress_->queue();
  marking_ = end_ - completed_ < most;
  if (!marking_) return;
  at(end_).number = number;
  cuda_.record(at(end_).before, stream);
}

void CollectiveMarks::end(CudaStream stream) {
  if (!marking_) return;
  cuda_.record(at(end_).after, stream);
  ++end_;
  marking_ = false;
}

void CollectiveMarks::poll() {
  for (; reached_ != end_ && cuda_.is_done(at(reached_).before); ++reached_) {
    progress_->reach(at(reached_).number);
  }
  for (; completed_ != reached_ && cuda_.is_done(at(completed_).after); ++completed_) {
    progress_->complete(at(completed_).number);
  }
}

}  // namespace lockstep
