#include "../../binary_cross_entropy.hpp"
#include "kernels.hpp"
#include "launch.hpp"
#include "loss_rows.hpp"
#include "vector_io.hpp"

namespace lockstep::gpu {
namespace {

LOCKSTEP_HOST_DEVICE BinaryCrossEntropyTerms terms_of(const LossExtent& extent) {
  return {.classes = extent.classes,
          .label_smoothing = extent.label_smoothing,
          .target_threshold = extent.target_threshold};
}

/// One thread block per sample. Copies the logits.
template <typename T>
struct SumLosses {
  struct Partial {
    double loss;
    LabelRank rank;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      loss += other.loss;
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
    const bool counts = sample < samples;
    const SampleTarget target =
        counts ? labels.target(sample) : SampleTarget{.label = 0, .partner = 0, .weight = 1};
    const std::int32_t label = target.heavier();
    const ClassLogit own{.index = label, .logit = to_float(row[label])};
    const BinaryCrossEntropyTerms terms = terms_of(extent);
    Partial result{0, {0, 0}};
    for (std::int64_t k = lane; k < extent.classes; k += threads_per_block) {
      const float logit = to_float(row[k]);
      copy[k] = logit;
      result.loss +=
          BinaryCrossEntropyTerms::loss(static_cast<double>(logit), terms.target(target, k));
      result.rank.add({.index = k, .logit = logit}, own);
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t sample, int, const Partial& row) const {
    const bool counts = sample < samples;
    out.ranks[sample] =
        counts ? row.rank.result(extent.classes) : LabelRank::no_hit(extent.classes);
    out.losses[sample] =
        counts ? static_cast<float>(row.loss / static_cast<double>(extent.classes)) : 0.0F;
    out.log_sums[sample] = counts ? 0.0F : infinity();
  }
};

/// One item per value of the gradient.
template <typename T>
struct BinaryBackward {
  LossExtent extent;
  const float* logits;
  const float* log_sums;
  BatchLabels labels;
  const float* scale;
  T* gradient;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t sample = item / extent.padded;
    const std::int64_t k = item - sample * extent.padded;
    double value = 0;
    if (k < extent.classes && log_sums[sample] != infinity()) {
      const BinaryCrossEntropyTerms terms = terms_of(extent);
      const auto logit = static_cast<double>(logits[sample * extent.classes + k]);
      value = static_cast<double>(*scale) *
              terms.gradient(logit, terms.target(labels.target(sample), k));
    }
    gradient[item] = from_float<T>(static_cast<float>(value));
  }
};

}  // namespace

void binary_cross_entropy_forward(Stream stream, DataType type, const LossExtent& extent,
                                  const void* logits, const BatchLabels& labels,
                                  std::int64_t samples, const LossOutputs& out) {
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, {.count = extent.batch, .columns = 1},
                  SumLosses<T>{extent, static_cast<const T*>(logits), labels, samples, out});
  });
}

void binary_cross_entropy_backward(Stream stream, DataType type, const LossExtent& extent,
                                   const LossOutputs& forward, const BatchLabels& labels,
                                   const float* scale, void* gradient) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.padded,
           BinaryBackward<T>{extent, forward.logits, forward.log_sums, labels, scale,
                             static_cast<T*>(gradient)});
  });
}

}  // namespace lockstep::gpu
