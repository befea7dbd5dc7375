#include "../../../../src/engine/gpu/convolution_request.hpp"
#include "kernel_values.hpp"

#include <optional>

using namespace lockstep::gpu;

namespace {

/// First convolutions of images with odd and even extents.
std::vector<ConvolutionShape> first_convolutions(DataType type) {
  std::vector<ConvolutionShape> shapes;
  for (const std::int64_t kernel : {3, 4, 5, 7, 8}) {
    for (const std::int64_t channels : {1, 3, 4}) {
      for (const std::int64_t padding : {std::int64_t{0}, kernel == 8 ? 2 : kernel / 2}) {
        shapes.push_back({.batch = 2,
                          .height = 10 + channels,
                          .width = 8 + kernel,
                          .in_channels = channels,
                          .out_channels = 8,
                          .kernel = kernel,
                          .stride = 2,
                          .padding = padding,
                          .type = type,
                          .tf32 = true});
      }
    }
  }
  return shapes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(column_gathering)

BOOST_AUTO_TEST_CASE(a_convolution_over_gathered_columns_is_that_over_images) {
  for (const DataType type : all_types) {
    for (const ConvolutionShape& shape : first_convolutions(type)) {
      const auto gather = column_gather(shape);
      BOOST_REQUIRE(gather.has_value());
      const ConvolutionShape gathered = stored_shape(shape, gather, "conv1");
      BOOST_TEST(gathered.out_height() == shape.out_height());
      BOOST_TEST(gathered.out_width() == shape.out_width());
      const Matrix pixels{shape.batch * shape.height * shape.width, shape.in_channels,
                          gather->padded};
      const Matrix taps{shape.out_channels * shape.kernel * shape.kernel, shape.in_channels,
                        gather->padded};
      const Values images = random_matrix(type, pixels, 1);
      const Values filters = random_matrix(type, taps, 2);
      Values x(type, gather->gathered_values());
      Values w(type, gather->gathered_filter_values());

      gather_columns(kernel_stream(), type, *gather, images.data(), x.data());
      gather_filters(kernel_stream(), type, *gather, filters.data(), w.data());

      const std::int64_t depth = gathered.in_channels;
      for (std::int64_t n = 0; n < shape.batch; ++n) {
        for (std::int64_t p = 0; p < shape.out_height(); ++p) {
          for (std::int64_t q = 0; q < shape.out_width(); ++q) {
            for (std::int64_t k = 0; k < shape.out_channels; ++k) {
              double expected = 0;
              for (std::int64_t tap = 0; tap < shape.kernel * shape.kernel; ++tap) {
                const std::int64_t h = 2 * p - shape.padding + tap / shape.kernel;
                const std::int64_t v = 2 * q - shape.padding + tap % shape.kernel;
                if (h < 0 || v < 0 || h >= shape.height || v >= shape.width) continue;
                for (std::int64_t c = 0; c < gather->padded; ++c) {
                  expected +=
                      images[((n * shape.height + h) * shape.width + v) * gather->padded + c] *
                      filters[(k * shape.kernel * shape.kernel + tap) * gather->padded + c];
                }
              }
              double actual = 0;
              for (std::int64_t row = 0; row < gathered.kernel; ++row) {
                for (std::int64_t c = 0; c < depth; ++c) {
                  actual += x[((n * gathered.height + p + row) * gathered.width + q) * depth + c] *
                            w[(k * gathered.kernel + row) * depth + c];
                }
              }
              BOOST_REQUIRE_SMALL(actual - expected, 1e-5);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_gathered_filters_return_to_the_filters) {
  for (const DataType type : all_types) {
    for (const ConvolutionShape& shape : first_convolutions(type)) {
      const auto gather = column_gather(shape);
      const Matrix taps{shape.out_channels * shape.kernel * shape.kernel, shape.in_channels,
                        gather->padded};
      const Values filters = random_matrix(type, taps, 3);
      Values gathered(type, gather->gathered_filter_values());
      gather_filters(kernel_stream(), type, *gather, filters.data(), gathered.data());
      Mirrored<float> back(static_cast<std::size_t>(gather->filter_values()), -1.0F);

      scatter_filters(kernel_stream(), type, *gather, gathered.data(), back.data(), false);
      scatter_filters(kernel_stream(), type, *gather, gathered.data(), back.data(), true);

      for (std::size_t i = 0; i < back.size(); ++i) {
        BOOST_REQUIRE(back[i] == 2 * filters[static_cast<std::int64_t>(i)]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(other_convolutions_are_not_gathered) {
  const ConvolutionShape stem = first_convolutions(DataType::bf16).front();
  const auto gathers = [&](auto change) {
    ConvolutionShape shape = stem;
    change(shape);
    return column_gather(shape).has_value();
  };
  BOOST_TEST(gathers([](auto&) {}));
  BOOST_TEST(!gathers([](auto& shape) { shape.stride = 1; }));
  BOOST_TEST(!gathers([](auto& shape) { shape.in_channels = 5; }));
  BOOST_TEST(!gathers([](auto& shape) {
    shape.in_channels = 2;
    shape.groups = 2;
  }));
  BOOST_TEST(!gathers([](auto& shape) { shape.kernel = 1; }));
  BOOST_TEST(!gathers([](auto& shape) { shape.kernel = 9; }));
  BOOST_TEST((stored_shape(stem, std::nullopt, "conv1").kernel_width == 0));
}

BOOST_AUTO_TEST_SUITE_END()
