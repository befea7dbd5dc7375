#include "collective_marks.hpp"

#include <algorithm>

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
  if (end_ - completed_ == most) {  // the newest mark moves on to this collective
    --end_;
    reached_ = std::min(reached_, end_);
    progress_->set_exact(false);  // until those in between are done
  }
  at(end_).number = ++queued_;
  cuda_.record(at(end_).before, stream);
}

void CollectiveMarks::end(CudaStream stream) {
  if (progress_ == nullptr) return;
  cuda_.record(at(end_).after, stream);
  ++end_;
}

void CollectiveMarks::poll() {
  if (progress_ == nullptr) return;
  for (; reached_ != end_ && cuda_.is_done(at(reached_).before); ++reached_) {
    progress_->reach(at(reached_).number);
  }
  for (; completed_ != reached_ && cuda_.is_done(at(completed_).after); ++completed_) {
    progress_->complete(at(completed_).number);
  }
  if (completed_ == end_) progress_->set_exact(true);
}

}  // namespace lockstep
