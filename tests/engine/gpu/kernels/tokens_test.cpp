#include "kernel_values.hpp"

#include <vector>

using namespace lockstep::gpu;

namespace {

constexpr std::int64_t channels = 11;

Matrix rows_of(const TokenExtent& extent) {
  return {.rows = extent.batch * extent.tokens, .channels = channels, .padded = extent.padded};
}
TokenExtent extent_of(std::int64_t batch, std::int64_t tokens) {
  return {.batch = batch, .tokens = tokens, .padded = padded_channels(channels)};
}
/// (rows, padded) in fp32.
Mirrored<float> parameter(std::int64_t rows, std::uint32_t which) {
  const TokenExtent extent = extent_of(1, rows);
  const Values values = random_matrix(DataType::f32, rows_of(extent), which);
  std::vector<float> result;
  for (std::int64_t i = 0; i < values.size(); ++i) result.push_back(static_cast<float>(values[i]));
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokens)

BOOST_AUTO_TEST_CASE(tokens_are_the_class_token_and_the_pixels_plus_positions) {
  for (const DataType type : all_types) {
    for (const TokenExtent& extent : {extent_of(1, 2), extent_of(3, 7), extent_of(5, 50)}) {
      const std::int64_t row = extent.padded;
      const Values pixels =
          random_matrix(type, rows_of(extent_of(extent.batch, extent.tokens - 1)), 1);
      const Mirrored<float> class_token = parameter(1, 2);
      const Mirrored<float> positions = parameter(extent.tokens, 3);
      Values y(type, extent.batch * extent.tokens * row);

      tokens_forward(kernel_stream(), type, extent, pixels.data(), class_token.data(),
                     positions.data(), y.data());

      const auto exact = [&](std::int64_t i) {
        const std::int64_t token = i / row % extent.tokens;
        const std::int64_t pixel = i - (i / row / extent.tokens + 1) * row;
        const auto c = static_cast<std::size_t>(i % row);
        const double position =
            double{positions[static_cast<std::size_t>(i % (extent.tokens * row))]};
        return (token == 0 ? double{class_token[c]} : pixels[pixel]) + position;
      };
      check_close(reader(y), exact, y.size(), type, 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_parameters_are_sums_over_samples) {
  for (const DataType type : all_types) {
    for (const bool adds : {false, true}) {
      const TokenExtent extent = extent_of(5, 7);
      const Values dy = random_matrix(type, rows_of(extent), 1);
      Mirrored<float> class_token = parameter(1, 2);
      Mirrored<float> positions = parameter(extent.tokens, 3);
      const Mirrored<float> class_before = class_token;
      const Mirrored<float> before = positions;

      tokens_parameter_gradients(
          kernel_stream(), type, extent, dy.data(),
          {.class_token = class_token.data(), .positions = positions.data(), .adds = adds});

      const auto sum = [&](std::int64_t i, const Mirrored<float>& there) {
        double result = adds ? double{there[static_cast<std::size_t>(i)]} : 0.0;
        for (std::int64_t n = 0; n < extent.batch; ++n) {
          result += dy[n * extent.tokens * extent.padded + i];
        }
        return result;
      };
      check_close(
          reader(positions), [&](std::int64_t i) { return sum(i, before); },
          extent.tokens * extent.padded, DataType::f32, 1e-5);
      check_close(
          reader(class_token), [&](std::int64_t i) { return sum(i, class_before); }, extent.padded,
          DataType::f32, 1e-5);

      const Mirrored<float> kept = positions;
      tokens_parameter_gradients(kernel_stream(), type, extent, dy.data(),
                                 {.class_token = nullptr, .positions = nullptr, .adds = true});
      BOOST_TEST((positions.host() == kept.host()));
    }
  }
}

BOOST_AUTO_TEST_CASE(copies_take_tokens_from_the_first_on_and_fill_with_zeros) {
  struct Copy {
    std::int64_t from_tokens, first, to_tokens;
  };
  for (const DataType type : all_types) {
    for (const Copy& copy : {Copy{7, 1, 6}, Copy{7, 0, 1}, Copy{1, 0, 7}}) {
      const TokenExtent extent = extent_of(3, copy.to_tokens);
      const Values from = random_matrix(type, rows_of(extent_of(3, copy.from_tokens)), 1);
      Values to(type, 3 * copy.to_tokens * extent.padded);

      copy_tokens(kernel_stream(), type, extent, from.data(), copy.from_tokens, copy.first,
                  to.data());

      const auto exact = [&](std::int64_t i) {
        const std::int64_t row = i / extent.padded;
        const std::int64_t token = row % copy.to_tokens + copy.first;
        if (token >= copy.from_tokens) return 0.0;
        return from[(row / copy.to_tokens * copy.from_tokens + token) * extent.padded +
                    i % extent.padded];
      };
      check_close(reader(to), exact, to.size(), type, 0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
