#include "inverse_deviation.hpp"
#include "kernels.hpp"
#include "launch.hpp"

namespace lockstep::gpu {
namespace {

struct StatisticsOfSums {
  enum : std::size_t { item_bytes = 2 * sizeof(double) + 3 * sizeof(float) };
  std::int64_t padded;
  const double* sums;
  NormStatistics out;
  double* elements;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t channel) const {
    const double count = sums[2 * padded];
    const double m = sums[channel] / count;
    const double squares = sums[padded + channel] / count - m * m;
    const float variance = squares < 0 ? 0.0F : static_cast<float>(squares);  // keeps NaN
    out.mean[channel] = static_cast<float>(m);
    out.variance[channel] = variance;
    out.inverse_deviation[channel] = inverse_deviation(variance, out.eps);
    if (channel == 0) *elements = count;
  }
};

struct ScaleToShare {
  enum : std::size_t { item_bytes = 2 * sizeof(float) };
  double rows;
  const double* elements;
  float* sums;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    sums[item] *= static_cast<float>(rows / *elements);
  }
};

}  // namespace

std::size_t count_of_norm_sums(const Matrix& extent) {
  return 2 * static_cast<std::size_t>(extent.padded) + 1;
}

void statistics_of_sums(Stream stream, const Matrix& extent, const double* sums,
                        const NormStatistics& out, double* elements) {
  launch(stream, extent.padded, StatisticsOfSums{extent.padded, sums, out, elements});
}

void scale_to_share(Stream stream, const Matrix& extent, const double* elements, float* sums) {
  launch(stream, 2 * extent.padded, ScaleToShare{static_cast<double>(extent.rows), elements, sums});
}

}  // namespace lockstep::gpu
