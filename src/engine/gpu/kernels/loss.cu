#include "../../losses/loss_terms.hpp"
#include "../../prediction_sums.hpp"
#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <bit>
#include <variant>

namespace lockstep::gpu {
namespace {

LOCKSTEP_HOST_DEVICE float infinity() {
  return std::bit_cast<float>(0x7F800000U);
}

/// One thread block per sample. Copies the logits and stores the largest in `kept`.
template <typename T>
struct FindLargest {
  struct Partial {
    float largest;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      if (other.largest > largest) largest = other.largest;
    }
  };
  LossExtent extent;
  const T* logits;
  LossOutputs out;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t sample, int, int lane) const {
    const T* const row = logits + sample * extent.padded;
    float* const copy = out.logits + sample * extent.classes;
    Partial result{-infinity()};
    for (std::int64_t k = lane; k < extent.classes; k += threads_per_block) {
      const float logit = to_float(row[k]);
      copy[k] = logit;
      if (logit > result.largest) result.largest = logit;
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t sample, int, const Partial& row) const {
    out.kept[sample] = row.largest;
  }
};

/// Computes each sample's loss and prediction, given the largest logit.
template <typename Terms>
struct SumTerms {
  static constexpr bool few_blocks = true;
  struct Partial {
    typename Terms::Sums loss;
    PredictionSums prediction;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      loss.merge(other.loss);
      prediction.merge(other.prediction);
    }
  };
  LossExtent extent;
  Terms terms;
  Targets targets;
  std::int64_t samples;
  LossOutputs out;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE LossRow row_of(std::int64_t sample) const {
    return {.logits = out.logits + sample * extent.classes,
            .largest = out.kept[sample],
            .target = targets.target(sample)};
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t sample, int, int lane) const {
    Partial result{};
    if (sample >= samples) return result;
    const LossRow row = row_of(sample);
    for (std::int64_t k = lane; k < extent.classes; k += threads_per_block) {
      terms.add(result.loss, row, k);
      result.prediction.add(row, k, extent.measures_confidence);
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t sample, int, const Partial& sums) const {
    if (sample >= samples) {
      out.losses[sample] = 0;
      out.predictions[sample] = {.rank = LabelRank::no_hit(extent.classes)};
      out.kept[sample] = infinity();
      return;
    }
    const LossRow row = row_of(sample);
    out.losses[sample] = static_cast<float>(terms.loss(sums.loss, row));
    out.predictions[sample] = sums.prediction.result(extent.classes);
    out.kept[sample] = static_cast<float>(terms.kept(sums.loss, row));
  }
};

/// One item per value of the gradient: fp64 exponentials leave no registers for more.
template <typename T, typename Terms>
struct LossGradient {
  LossExtent extent;
  Terms terms;
  const float* logits;
  const float* kept;
  Targets targets;
  const float* scale;
  T* gradient;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t sample = item / extent.padded;
    const std::int64_t k = item - sample * extent.padded;
    double value = 0;
    if (k < extent.classes && kept[sample] != infinity()) {
      const auto logit = static_cast<double>(logits[sample * extent.classes + k]);
      const double target = terms.targets.of(targets.target(sample), k);
      value = static_cast<double>(*scale) *
              terms.gradient(logit, target, static_cast<double>(kept[sample]));
    }
    gradient[item] = from_float<T>(static_cast<float>(value));
  }
};

}  // namespace

void loss_forward(Stream stream, DataType type, const LossExtent& extent, const LossTerms& loss,
                  const LossInputs& in, const LossOutputs& out) {
  const ThreadBlocks blocks{.count = extent.batch, .columns = 1};
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, blocks, FindLargest<T>{extent, static_cast<const T*>(in.logits), out});
  });
  std::visit(
      [&]<typename Terms>(const Terms& terms) {
        launch_blocks(stream, blocks, SumTerms<Terms>{extent, terms, in.targets, in.samples, out});
      },
      loss);
}

void loss_backward(Stream stream, DataType type, const LossExtent& extent, const LossTerms& loss,
                   const LossOutputs& forward, const Targets& targets, const float* scale,
                   void* gradient) {
  const auto run = [&]<typename Terms>(const Terms& terms) {
    with_type(type, [&]<typename T>(T*) {
      launch(stream, extent.batch * extent.padded,
             LossGradient<T, Terms>{extent, terms, forward.logits, forward.kept, targets, scale,
                                    static_cast<T*>(gradient)});
    });
  };
  std::visit(run, loss);
}

}  // namespace lockstep::gpu
