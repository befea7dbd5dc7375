#include "loss.hpp"

#include "../prediction_sums.hpp"

#include <algorithm>
#include <cassert>
#include <variant>

namespace lockstep::cpu {
namespace {

std::size_t size_of(std::int64_t extent) {
  return static_cast<std::size_t>(extent);
}

}  // namespace

Loss::Loss(const GraphLoss& loss, std::int64_t batch_size)
    : loss_(loss),
      logits_(size_of(batch_size * loss.classes)),
      targets_(size_of(batch_size)),
      kept_(size_of(batch_size)),
      losses_(size_of(batch_size)),
      predictions_(size_of(batch_size)) {}

void Loss::forward(const float* logits, const Targets& targets, std::int64_t samples) {
  std::copy_n(logits, logits_.size(), logits_.data());
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    targets_[size_of(sample)] = targets.target(sample);
  }
  samples_ = samples;
  std::visit(
      [&](const auto& terms) {
#pragma omp parallel for schedule(static)
        for (std::int64_t sample = 0; sample < samples; ++sample) forward_sample(terms, sample);
      },
      loss_.terms);
}

LossRow Loss::row_of(std::int64_t sample) const {
  const float* row = logits_.data() + sample * loss_.classes;
  return {.logits = row,
          .largest = *std::max_element(row, row + loss_.classes),
          .target = targets_[size_of(sample)]};
}

template <typename Terms>
void Loss::forward_sample(const Terms& terms, std::int64_t sample) {
  const LossRow row = row_of(sample);
  assert(row.target.label >= 0 && row.target.label < loss_.classes);
  typename Terms::Sums sums{};
  for (std::int64_t k = 0; k < loss_.classes; ++k) terms.add(sums, row, k);
  PredictionSums prediction{};
  for (std::int64_t k = 0; k < loss_.classes; ++k)
    prediction.add(row, k, loss_.measures_confidence);
  const std::size_t n = size_of(sample);
  losses_[n] = terms.loss(sums, row);
  kept_[n] = terms.kept(sums, row);
  predictions_[n] = prediction.result(loss_.classes);
}

void Loss::backward(float scale, float* gradient) const {
  std::visit(
      [&](const auto& terms) {
#pragma omp parallel for schedule(static)
        for (std::int64_t sample = 0; sample < samples_; ++sample) {
          backward_sample(terms, sample, scale, gradient + sample * loss_.classes);
        }
      },
      loss_.terms);
}

template <typename Terms>
void Loss::backward_sample(const Terms& terms, std::int64_t sample, float scale, float* out) const {
  const float* row = logits_.data() + sample * loss_.classes;
  const std::size_t n = size_of(sample);
  for (std::int64_t k = 0; k < loss_.classes; ++k) {
    const double target = terms.targets.of(targets_[n], k);
    out[k] = static_cast<float>(double{scale} * terms.gradient(double{row[k]}, target, kept_[n]));
  }
}

BatchMetrics Loss::metrics() const noexcept {
  const std::size_t samples = size_of(samples_);
  return sum_metrics(losses_.span().first(samples), predictions_.span().first(samples));
}

}  // namespace lockstep::cpu
