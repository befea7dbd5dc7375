#include "loss.hpp"

#include "../binary_cross_entropy.hpp"
#include "lockstep/core/label_rank.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep::cpu {
namespace {

std::size_t size_of(std::int64_t extent) {
  return static_cast<std::size_t>(extent);
}

BinaryCrossEntropyTerms binary_terms(const GraphLoss& loss) {
  return {.classes = loss.classes,
          .label_smoothing = loss.rule.label_smoothing,
          .target_threshold = loss.rule.target_threshold};
}

}  // namespace

Loss::Loss(const GraphLoss& loss, std::int64_t batch_size)
    : loss_(loss),
      logits_(size_of(batch_size * loss.classes)),
      targets_(size_of(batch_size)),
      log_sums_(size_of(batch_size)),
      losses_(size_of(batch_size)),
      ranks_(size_of(batch_size)) {}

void Loss::forward(const float* logits, const BatchLabels& labels, std::int64_t samples) {
  std::copy_n(logits, logits_.size(), logits_.data());
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    targets_[size_of(sample)] = labels.target(sample);
  }
  samples_ = samples;
#pragma omp parallel for schedule(static)
  for (std::int64_t sample = 0; sample < samples; ++sample) forward_sample(sample);
}

void Loss::forward_sample(std::int64_t sample) {
  const std::size_t n = size_of(sample);
  const std::size_t classes = size_of(loss_.classes);
  const float* row = logits_.data() + n * classes;
  const SampleTarget& target = targets_[n];
  assert(target.label >= 0 && target.label < loss_.classes);
  ranks_[n] = label_rank({row, classes}, target.heavier());
  if (loss_.rule.kind == LossKind::bce) {
    binary_loss(n);
  } else {
    softmax_loss(n, *std::max_element(row, row + classes));
  }
}

void Loss::softmax_loss(std::size_t n, float largest) {
  const std::size_t classes = size_of(loss_.classes);
  const float* row = logits_.data() + n * classes;
  double sum = 0;       // of exponentials
  double mean_gap = 0;  // sum of the logits' distances from the largest
  for (std::size_t k = 0; k < classes; ++k) {
    const double gap = double{row[k]} - double{largest};
    sum += std::exp(gap);
    mean_gap += gap;
  }
  mean_gap /= static_cast<double>(classes);
  const double log_sum = std::log(sum);
  const auto gap = [&](std::int32_t k) { return double{row[size_of(k)]} - double{largest}; };
  const double label_gap = targets_[n].mean(gap(targets_[n].label), gap(targets_[n].partner));
  const double smoothing = loss_.rule.label_smoothing;
  log_sums_[n] = log_sum + double{largest};
  losses_[n] = log_sum - (1 - smoothing) * label_gap - smoothing * mean_gap;
  if (smoothing == 0) losses_[n] = log_sum - label_gap;
}

void Loss::binary_loss(std::size_t n) {
  const std::size_t classes = size_of(loss_.classes);
  const float* row = logits_.data() + n * classes;
  const BinaryCrossEntropyTerms terms = binary_terms(loss_);
  double sum = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    const double target = terms.target(targets_[n], static_cast<std::int64_t>(k));
    sum += BinaryCrossEntropyTerms::loss(double{row[k]}, target);
  }
  losses_[n] = sum / static_cast<double>(classes);
}

void Loss::backward(float scale, float* gradient) const {
#pragma omp parallel for schedule(static)
  for (std::int64_t sample = 0; sample < samples_; ++sample) {
    const std::size_t n = size_of(sample);
    const std::span out(gradient + sample * loss_.classes, size_of(loss_.classes));
    if (loss_.rule.kind == LossKind::bce) {
      binary_gradient(n, scale, out);
    } else {
      softmax_gradient(n, scale, out);
    }
  }
}

void Loss::softmax_gradient(std::size_t n, float scale, std::span<float> out) const {
  const float* row = logits_.data() + n * out.size();
  const double smoothing = loss_.rule.label_smoothing;
  const double off_target = smoothing / static_cast<double>(out.size());
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double target =
        off_target + (1 - smoothing) * targets_[n].share(static_cast<std::int64_t>(k));
    out[k] = static_cast<float>(scale * (std::exp(double{row[k]} - log_sums_[n]) - target));
  }
}

void Loss::binary_gradient(std::size_t n, float scale, std::span<float> out) const {
  const float* row = logits_.data() + n * out.size();
  const BinaryCrossEntropyTerms terms = binary_terms(loss_);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double target = terms.target(targets_[n], static_cast<std::int64_t>(k));
    out[k] = static_cast<float>(scale * terms.gradient(double{row[k]}, target));
  }
}

BatchMetrics Loss::metrics() const noexcept {
  const std::size_t samples = size_of(samples_);
  return sum_metrics(losses_.span().first(samples), ranks_.span().first(samples));
}

}  // namespace lockstep::cpu
