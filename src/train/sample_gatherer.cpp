#include "sample_gatherer.hpp"

#include "lockstep/train/batch_geometry.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

std::size_t size_of(std::int64_t extent) {
  return static_cast<std::size_t>(extent);
}

/// Copies [first, first + to.size()) of `from`, as far as it exists.
template <typename T>
void copy_existing(std::span<const T> from, std::size_t first, std::span<T> to) {
  const std::span<const T> rest = from.subspan(std::min(first, from.size()));
  std::copy_n(rest.begin(), std::min(rest.size(), to.size()), to.begin());
}

}  // namespace

SampleGatherer::SampleGatherer(Communicator& comm, const Options& options)
    : comm_(comm),
      options_(options),
      piece_rows_(std::clamp<std::int64_t>(
          options.piece_bytes / (std::int64_t{comm.size()} * options.classes *
                                 static_cast<std::int64_t>(sizeof(float))),
          1, options.batch_size)),
      labels_(size_of(piece_rows_)),
      logits_(size_of(piece_rows_ * options.classes)) {
  if (comm.rank() != 0) return;
  all_labels_.resize(size_of(comm.size()) * labels_.size());
  all_logits_.resize(size_of(comm.size()) * logits_.size());
}

void SampleGatherer::gather(std::span<const std::int32_t> labels, std::span<const float> logits,
                            FunctionRef<void(const EvaluatedSamples&)> take) {
  // Rank 0 has the largest share, so its batch is as large as any of the round.
  const auto largest =
      plan_evaluation_batches(options_.samples, comm_.size(), 0, options_.batch_size)(round_);
  const std::int64_t count = largest ? largest->count : 0;
  for (std::int64_t row = 0; row < count; row += piece_rows_) {
    const std::int64_t rows = std::min(piece_rows_, count - row);
    const std::size_t values = size_of(rows * options_.classes);
    const std::size_t ranks = all_labels_.empty() ? 0 : size_of(comm_.size());
    copy_existing(labels, size_of(row), std::span(labels_).first(size_of(rows)));
    copy_existing(logits, size_of(row * options_.classes), std::span(logits_).first(values));
    comm_.gather(std::span<const std::int32_t>(labels_).first(size_of(rows)),
                 std::span(all_labels_).first(ranks * size_of(rows)));
    comm_.gather(std::span<const float>(logits_).first(values),
                 std::span(all_logits_).first(ranks * values));
    if (comm_.rank() == 0) take_piece(row, rows, take);
  }
  ++round_;
}

void SampleGatherer::take_piece(std::int64_t row, std::int64_t rows,
                                FunctionRef<void(const EvaluatedSamples&)> take) const {
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto batch =
        plan_evaluation_batches(options_.samples, comm_.size(), rank, options_.batch_size)(round_);
    const std::int64_t count = batch ? std::clamp<std::int64_t>(batch->count - row, 0, rows) : 0;
    if (count == 0) continue;
    const std::int64_t begin = rank * rows;
    take({.first = batch->first + row,
          .labels = std::span(all_labels_).subspan(size_of(begin), size_of(count)),
          .logits =
              std::span(all_logits_)
                  .subspan(size_of(begin * options_.classes), size_of(count * options_.classes))});
  }
}

}  // namespace lockstep
