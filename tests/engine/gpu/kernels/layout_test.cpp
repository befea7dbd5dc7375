#include "kernel_values.hpp"

using namespace lockstep::gpu;

namespace {

/// Images of odd extents; `channels` may need padding.
std::vector<ImageExtent> image_extents() {
  std::vector<ImageExtent> result;
  for (const std::int64_t channels : {1, 3, 5, 8, 17, 33}) {
    for (const std::int64_t height : {1, 7}) {
      result.push_back({.batch = 3,
                        .height = height,
                        .width = height + 2,
                        .channels = channels,
                        .padded = padded_channels(channels)});
    }
  }
  return result;
}
Matrix pixels_of(const ImageExtent& extent) {
  return {.rows = extent.batch * extent.height * extent.width,
          .channels = extent.channels,
          .padded = extent.padded};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layout)

BOOST_AUTO_TEST_CASE(images_are_padded) {
  for (const DataType type : all_types) {
    for (const ImageExtent& extent : image_extents()) {
      const Matrix pixels = pixels_of(extent);
      const Matrix dense{pixels.rows, pixels.channels, pixels.channels};
      const Values images = random_matrix(DataType::f32, dense, 1);
      Values out(type, pixels.rows * pixels.padded);

      pack_images(kernel_stream(), type, extent, static_cast<const float*>(images.data()),
                  out.data());

      const auto expected = [&](std::int64_t i) {
        const std::int64_t c = i % extent.padded;
        return c < extent.channels ? images[i / extent.padded * extent.channels + c] : 0.0;
      };
      check_close(reader(out), expected, out.size(), type, 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(flattening_orders_features_by_channel_and_is_reversible) {
  for (const DataType type : all_types) {
    for (const ImageExtent& extent : image_extents()) {
      const std::int64_t area = extent.height * extent.width;
      const std::int64_t features = padded_channels(extent.channels * area);
      const Values x = random_matrix(type, pixels_of(extent), 1);
      Values y(type, extent.batch * features);
      Values back(type, x.size());

      flatten_forward(kernel_stream(), type, extent, features, x.data(), y.data());
      flatten_backward(kernel_stream(), type, extent, features, y.data(), back.data());

      const auto expected = [&](std::int64_t i) {
        const std::int64_t c = i % features / area;
        const std::int64_t pixel = i / features * area + i % features % area;
        return c < extent.channels ? x[pixel * extent.padded + c] : 0.0;
      };
      check_close(reader(y), expected, y.size(), type, 0);
      BOOST_TEST((back == x));
    }
  }
}

BOOST_AUTO_TEST_CASE(global_pooling_averages_and_distributes_the_gradient) {
  for (const DataType type : all_types) {
    for (const ImageExtent& extent : image_extents()) {
      const std::int64_t area = extent.height * extent.width;
      const Values x = random_matrix(type, pixels_of(extent), 1);
      const Values dy = random_matrix(type, {extent.batch, extent.channels, extent.padded}, 2);
      Values y(type, extent.batch * extent.padded);
      Values dx(type, x.size());

      global_avg_pool_forward(kernel_stream(), type, extent.batch, area, extent.padded, x.data(),
                              y.data());
      global_avg_pool_backward(kernel_stream(), type, extent.batch, area, extent.padded, dy.data(),
                               dx.data());

      std::vector<double> means(static_cast<std::size_t>(y.size()));
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const std::int64_t image = i / (area * extent.padded);
        means[static_cast<std::size_t>(image * extent.padded + i % extent.padded)] +=
            x[i] / static_cast<double>(area);
      }
      check_close(reader(y), reader(means), y.size(), type, 1e-6);
      const auto spread = [&](std::int64_t i) {
        return dy[i / (area * extent.padded) * extent.padded + i % extent.padded] /
               static_cast<double>(area);
      };
      check_close(reader(dx), spread, dx.size(), type, 1e-7);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
