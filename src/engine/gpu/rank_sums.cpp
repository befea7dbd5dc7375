#include "rank_sums.hpp"

#include "kernels/inverse_deviation.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::gpu {

RankSums::RankSums(Device& device, UnitExchange* exchange, SumOverRanks sum, std::int64_t rows,
                   std::int64_t padded)
    : device_(device),
      exchange_(exchange),
      sum_(std::move(sum)),
      padded_(static_cast<std::size_t>(padded)),
      rows_(static_cast<double>(rows)),
      elements_(rows_),
      host_(device, 3 * padded_, DeviceArray<float>::Place::host),
      sums_(2 * padded_ + 1),
      fetched_(device.make_event()) {}

void RankSums::fetch(const float* first, const float* second) {
  device_.copy_to_host(host_.data(), first, padded_ * sizeof(float));
  device_.copy_to_host(host_.data() + padded_, second, padded_ * sizeof(float));
  device_.mark(*fetched_, Device::Queue::work);
  if (exchange_ != nullptr) {
    exchange_->await([this] { return device_.has_reached(*fetched_); });
  }
  device_.wait(*fetched_);
}

void RankSums::send(float* to, std::size_t row) {
  device_.copy_to_device(to, host_.data() + row * padded_, padded_ * sizeof(float));
}

void RankSums::combine_statistics(const NormStatistics& statistics) {
  fetch(statistics.mean, statistics.variance);
  double* const means = sums_.data();
  double* const squares = means + padded_;
  for (std::size_t c = 0; c < padded_; ++c) {
    const double m = host_.data()[c];
    means[c] = rows_ * m;
    squares[c] = rows_ * (m * m + double{host_.data()[padded_ + c]});
  }
  sums_[2 * padded_] = rows_;
  sum_(sums_);
  elements_ = sums_[2 * padded_];
  for (std::size_t c = 0; c < padded_; ++c) {
    const double m = means[c] / elements_;
    host_.data()[c] = static_cast<float>(m);
    const auto variance = static_cast<float>(std::max(squares[c] / elements_ - m * m, 0.0));
    host_.data()[padded_ + c] = variance;
    host_.data()[2 * padded_ + c] = inverse_deviation(variance, statistics.eps);
  }
  send(statistics.mean, 0);
  send(statistics.variance, 1);
  send(statistics.inverse_deviation, 2);
}

void RankSums::combine_gradients(float* weight, float* bias) {
  fetch(weight, bias);
  std::copy_n(host_.data(), 2 * padded_, sums_.data());
  sum_(std::span(sums_).first(2 * padded_));
  std::transform(sums_.begin(), sums_.end() - 1, host_.data(),
                 [](double sum) { return static_cast<float>(sum); });
  send(weight, 0);
  send(bias, 1);
}

}  // namespace lockstep::gpu
