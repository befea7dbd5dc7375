#include "kernels.hpp"
#include "launch.hpp"
#include "loss_rows.hpp"
#include "vector_io.hpp"

#include <cmath>

namespace lockstep::gpu {
namespace {

/// One thread block per sample. Copies the logits and stores the largest in `log_sums`.
template <typename T>
struct FindLargest {
  struct Partial {
    float largest;
    LabelRank rank;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      if (other.largest > largest) largest = other.largest;
      rank.merge(other.rank);
    }
  };
  LossExtent extent;
  const T* logits;
  BatchLabels labels;
  std::int64_t samples;
  LossOutputs out;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t sample, int, int lane) const {
    const T* const row = logits + sample * extent.padded;
    float* const copy = out.logits + sample * extent.classes;
    const std::int32_t label = sample < samples ? labels.target(sample).heavier() : 0;
    const ClassLogit own{.index = label, .logit = to_float(row[label])};
    Partial result{-infinity(), {0, 0}};
    for (std::int64_t k = lane; k < extent.classes; k += threads_per_block) {
      const float logit = to_float(row[k]);
      copy[k] = logit;
      if (logit > result.largest) result.largest = logit;
      result.rank.add({.index = k, .logit = logit}, own);
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t sample, int, const Partial& row) const {
    out.log_sums[sample] = row.largest;
    out.ranks[sample] =
        sample < samples ? row.rank.result(extent.classes) : LabelRank::no_hit(extent.classes);
  }
};

/// Computes the sums, given the largest logit.
struct SumExponentials {
  struct Partial {
    double exponentials;
    double gaps;  ///< sum of the logits' distances from the largest
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      exponentials += other.exponentials;
      gaps += other.gaps;
    }
  };
  LossExtent extent;
  BatchLabels labels;
  std::int64_t samples;
  LossOutputs out;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gap(std::int64_t sample, std::int64_t k) const {
    return static_cast<double>(out.logits[sample * extent.classes + k]) -
           static_cast<double>(out.log_sums[sample]);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t sample, int, int lane) const {
    Partial result{0, 0};
    for (std::int64_t k = lane; k < extent.classes; k += threads_per_block) {
      const double distance = gap(sample, k);
      result.exponentials += std::exp(distance);
      result.gaps += distance;
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t sample, int, const Partial& row) const {
    if (sample >= samples) {
      out.losses[sample] = 0;
      out.log_sums[sample] = infinity();
      return;
    }
    const double smoothing = extent.label_smoothing;
    const double log_sum = std::log(row.exponentials);
    const SampleTarget target = labels.target(sample);
    const double label_gap = target.mean(gap(sample, target.label), gap(sample, target.partner));
    double loss = log_sum - label_gap;
    if (smoothing != 0) {
      loss = log_sum - (1 - smoothing) * label_gap -
             smoothing * row.gaps / static_cast<double>(extent.classes);
    }
    out.losses[sample] = static_cast<float>(loss);
    out.log_sums[sample] = static_cast<float>(log_sum + static_cast<double>(out.log_sums[sample]));
  }
};

/// One item per value of the gradient: fp64 exponentials leave no registers for more.
template <typename T>
struct Backward {
  LossExtent extent;
  const float* logits;
  const float* log_sums;
  BatchLabels labels;
  double share_of_each;  ///< of every class in the target, by label smoothing
  const float* scale;
  T* gradient;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t sample = item / extent.padded;
    const std::int64_t k = item - sample * extent.padded;
    const float log_sum = log_sums[sample];
    double value = 0;
    if (k < extent.classes && log_sum != infinity()) {
      const auto logit = static_cast<double>(logits[sample * extent.classes + k]);
      const double target =
          share_of_each + (1 - extent.label_smoothing) * labels.target(sample).share(k);
      value =
          static_cast<double>(*scale) * (std::exp(logit - static_cast<double>(log_sum)) - target);
    }
    gradient[item] = from_float<T>(static_cast<float>(value));
  }
};

}  // namespace

void softmax_cross_entropy_forward(Stream stream, DataType type, const LossExtent& extent,
                                   const void* logits, const BatchLabels& labels,
                                   std::int64_t samples, const LossOutputs& out) {
  const ThreadBlocks blocks{.count = extent.batch, .columns = 1};
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, blocks,
                  FindLargest<T>{extent, static_cast<const T*>(logits), labels, samples, out});
  });
  launch_blocks(stream, blocks, SumExponentials{extent, labels, samples, out});
}

void softmax_cross_entropy_backward(Stream stream, DataType type, const LossExtent& extent,
                                    const LossOutputs& forward, const BatchLabels& labels,
                                    const float* scale, void* gradient) {
  const double share_of_each = extent.label_smoothing / static_cast<double>(extent.classes);
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.padded,
           Backward<T>{extent, forward.logits, forward.log_sums, labels, share_of_each, scale,
                       static_cast<T*>(gradient)});
  });
}

}  // namespace lockstep::gpu
