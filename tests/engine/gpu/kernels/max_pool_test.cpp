#include "kernel_values.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>

using namespace lockstep::gpu;

namespace {

struct Window {
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
};
std::vector<PoolExtent> pool_extents() {
  std::vector<PoolExtent> result;
  for (const Window& window :
       {Window{1, 1, 0}, Window{2, 2, 0}, Window{2, 1, 1}, Window{3, 2, 1}, Window{3, 1, 1},
        Window{3, 3, 0}, Window{3, 4, 1}, Window{5, 2, 2}}) {
    for (const std::int64_t height : {5, 8}) {
      for (const std::int64_t channels : {3, 17}) {
        const auto out = [&](std::int64_t size) {
          return (size + 2 * window.padding - window.kernel) / window.stride + 1;
        };
        result.push_back({.batch = 2,
                          .height = height,
                          .width = height + 3,
                          .out_height = out(height),
                          .out_width = out(height + 3),
                          .padded = padded_channels(channels),
                          .kernel = window.kernel,
                          .stride = window.stride,
                          .padding = window.padding});
      }
    }
  }
  return result;
}
std::string name_of(const PoolExtent& extent) {
  return fmt::format("kernel {}, stride {}, padding {}, {} x {} x {}", extent.kernel, extent.stride,
                     extent.padding, extent.height, extent.width, extent.padded);
}
std::int64_t inputs(const PoolExtent& extent) {
  return extent.batch * extent.height * extent.width * extent.padded;
}
std::int64_t outputs(const PoolExtent& extent) {
  return extent.batch * extent.out_height * extent.out_width * extent.padded;
}

/// Input index of the first largest value of output value `i`, and its position in the window.
struct Taken {
  std::int64_t input = -1;
  std::int64_t place = 0;
};
Taken taken_by(const Values& x, const PoolExtent& extent, std::int64_t i) {
  const std::int64_t channel = i % extent.padded;
  const std::int64_t pixel = i / extent.padded;
  const std::int64_t column = pixel % extent.out_width;
  const std::int64_t row = pixel / extent.out_width % extent.out_height;
  const std::int64_t image = pixel / extent.out_width / extent.out_height;
  Taken taken;
  for (std::int64_t r = 0; r < extent.kernel; ++r) {
    for (std::int64_t s = 0; s < extent.kernel; ++s) {
      const std::int64_t h = row * extent.stride - extent.padding + r;
      const std::int64_t w = column * extent.stride - extent.padding + s;
      if (h < 0 || h >= extent.height || w < 0 || w >= extent.width) continue;
      const std::int64_t at =
          ((image * extent.height + h) * extent.width + w) * extent.padded + channel;
      const bool is_first = taken.input < 0;
      if (is_first || x[at] > x[taken.input] ||
          (std::isnan(x[at]) && !std::isnan(x[taken.input]))) {
        taken = {at, r * extent.kernel + s};
      }
    }
  }
  return taken;
}

/// Few distinct values, so that many are equal; some NaN and infinities.
Values pool_input(DataType type, const PoolExtent& extent) {
  Random random(1);
  Values x(type, inputs(extent));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double value = std::round(random() * 2);
    x.set(i, i % 101 == 7 ? std::numeric_limits<double>::quiet_NaN()
             : i % 7 == 3 ? -std::numeric_limits<double>::infinity()
                          : value);
  }
  return x;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(max_pool)

BOOST_AUTO_TEST_CASE(the_first_of_equal_maxima_is_taken_and_gets_the_gradient) {
  for (const DataType type : all_types) {
    for (const PoolExtent& extent : pool_extents()) {
      BOOST_TEST_CONTEXT(type << ", " << name_of(extent)) {
        const Values x = pool_input(type, extent);
        const Values dy = random_matrix(type, {1, outputs(extent), outputs(extent)}, 2);
        Values y(type, outputs(extent));
        Values y_alone(type, outputs(extent));
        Mirrored<std::uint8_t> index(static_cast<std::size_t>(outputs(extent)), 0xFF);
        Values dx(type, inputs(extent));

        max_pool_forward(kernel_stream(), type, extent, x.data(), y.data(), index.data());
        max_pool_forward(kernel_stream(), type, extent, x.data(), y_alone.data(), nullptr);
        max_pool_backward(kernel_stream(), type, extent, dy.data(), index.data(), dx.data());

        std::vector<double> gradient(static_cast<std::size_t>(x.size()));
        bool places_are_right = true;
        for (std::int64_t i = 0; i < y.size(); ++i) {
          const Taken taken = taken_by(x, extent, i);
          places_are_right = places_are_right && index[static_cast<std::size_t>(i)] == taken.place;
          gradient[static_cast<std::size_t>(taken.input)] += dy[i];
        }
        BOOST_TEST(places_are_right);
        check_close(
            reader(y), [&](std::int64_t i) { return x[taken_by(x, extent, i).input]; }, y.size(),
            type, 0);
        check_close(reader(dx), reader(gradient), dx.size(), type, 1e-6);
        BOOST_TEST((y_alone == y));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
