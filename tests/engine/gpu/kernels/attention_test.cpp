#include "kernel_values.hpp"

#include <cmath>
#include <limits>
#include <vector>

using namespace lockstep::gpu;

namespace {

AttentionExtent extent_of(std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                          std::int64_t width) {
  return {.batch = batch,
          .tokens = tokens,
          .heads = heads,
          .width = width,
          .padded_input = padded_channels(3 * heads * width),
          .padded = padded_channels(heads * width)};
}
Matrix input_of(const AttentionExtent& extent) {
  return {.rows = extent.batch * extent.tokens,
          .channels = 3 * extent.heads * extent.width,
          .padded = extent.padded_input};
}
Matrix output_of(const AttentionExtent& extent) {
  return {.rows = extent.batch * extent.tokens,
          .channels = extent.heads * extent.width,
          .padded = extent.padded};
}

struct Passes {
  Values y;
  Values dqkv;
};
Passes run(const AttentionExtent& extent, const Values& qkv, const Values& dy) {
  const DataType type = qkv.type();
  Passes result{.y = Values(type, dy.size()), .dqkv = Values(type, qkv.size())};
  Mirrored<float> normalizers(
      static_cast<std::size_t>(extent.batch * extent.heads * extent.tokens));
  const auto workspace = [&](AttentionPass pass) {
    return Mirrored<float>(attention_workspace(extent, pass) / sizeof(float),
                           std::numeric_limits<float>::quiet_NaN());
  };
  Mirrored<float> scores = workspace(AttentionPass::forward);
  attention_forward(kernel_stream(), type, extent, qkv.data(), normalizers.data(), result.y.data(),
                    scores.data());
  Mirrored<float> both = workspace(AttentionPass::backward);
  attention_backward(kernel_stream(), type, extent, qkv.data(), normalizers.data(), dy.data(),
                     result.dqkv.data(), both.data());
  return result;
}

/// The definition in double precision: of a head of a sample, values are (token, channel).
struct Expected {
  std::vector<double> y, dqkv;
};
Expected expected(const AttentionExtent& extent, const Values& qkv, const Values& dy) {
  Expected result{.y = std::vector<double>(static_cast<std::size_t>(dy.size())),
                  .dqkv = std::vector<double>(static_cast<std::size_t>(qkv.size()))};
  const std::int64_t channels = extent.heads * extent.width;
  const double factor = 1 / std::sqrt(static_cast<double>(extent.width));
  for (std::int64_t head = 0; head < extent.batch * extent.heads; ++head) {
    const std::int64_t first = head / extent.heads * extent.tokens;
    const std::int64_t own = head % extent.heads * extent.width;
    const auto in = [&](int part, std::int64_t token, std::int64_t c) {
      return static_cast<std::size_t>((first + token) * extent.padded_input + part * channels +
                                      own + c);
    };
    const auto out = [&](std::int64_t token, std::int64_t c) {
      return static_cast<std::size_t>((first + token) * extent.padded + own + c);
    };
    const auto q = [&](int part, std::int64_t token, std::int64_t c) {
      return qkv[static_cast<std::int64_t>(in(part, token, c))];
    };
    for (std::int64_t i = 0; i < extent.tokens; ++i) {
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t j = 0; j < extent.tokens; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < extent.width; ++c) score += q(0, i, c) * q(1, j, c);
        weights.push_back(std::exp(score * factor));
        sum += weights.back();
      }
      std::vector<double> of_weights;
      double mean = 0;
      for (std::int64_t j = 0; j < extent.tokens; ++j) {
        double& weight = weights[static_cast<std::size_t>(j)];
        weight /= sum;
        double of_weight = 0;
        for (std::int64_t c = 0; c < extent.width; ++c) {
          const double gradient = dy[static_cast<std::int64_t>(out(i, c))];
          result.y[out(i, c)] += weight * q(2, j, c);
          result.dqkv[in(2, j, c)] += weight * gradient;
          of_weight += gradient * q(2, j, c);
        }
        of_weights.push_back(of_weight);
        mean += weight * of_weight;
      }
      for (std::int64_t j = 0; j < extent.tokens; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double of_score = weights[at] * (of_weights[at] - mean) * factor;
        for (std::int64_t c = 0; c < extent.width; ++c) {
          result.dqkv[in(0, i, c)] += of_score * q(1, j, c);
          result.dqkv[in(1, j, c)] += of_score * q(0, i, c);
        }
      }
    }
  }
  return result;
}

/// The rows of one sample.
Values sample_of(const Values& all, std::int64_t sample, std::int64_t samples) {
  const std::int64_t size = all.size() / samples;
  Values result(all.type(), size);
  for (std::int64_t i = 0; i < size; ++i) result.set(i, all[sample * size + i]);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention)

// Fewer and more tokens than lanes; padding after heads of odd widths.
BOOST_AUTO_TEST_CASE(values_and_gradients_are_those_of_the_definition) {
  for (const DataType type : all_types) {
    for (const AttentionExtent& extent : {extent_of(1, 1, 1, 1), extent_of(3, 5, 3, 3),
                                          extent_of(2, 33, 2, 8), extent_of(2, 70, 1, 20)}) {
      BOOST_TEST_CONTEXT(type << ", " << extent.tokens << " tokens") {
        const Values qkv = random_matrix(type, input_of(extent), 1);
        const Values dy = random_matrix(type, output_of(extent), 2);
        const Passes passes = run(extent, qkv, dy);
        const Expected exact = expected(extent, qkv, dy);
        check_close(reader(passes.y), reader(exact.y), dy.size(), type, 1e-5);
        check_close(reader(passes.dqkv), reader(exact.dqkv), qkv.size(), type, 1e-4);
      }
    }
  }
}

// The scores of three of these samples fit into the workspace.
BOOST_AUTO_TEST_CASE(samples_whose_scores_do_not_fit_at_once_are_computed_in_turn) {
  const AttentionExtent extent = extent_of(5, 1025, 4, 1);
  const Values qkv = random_matrix(DataType::f32, input_of(extent), 1);
  const Values dy = random_matrix(DataType::f32, output_of(extent), 2);
  const std::size_t all_scores = 5 * 4 * 1025 * 1025 * sizeof(float);
  BOOST_REQUIRE(attention_workspace(extent, AttentionPass::forward) < all_scores);

  const Passes together = run(extent, qkv, dy);

  for (std::int64_t sample = 0; sample < extent.batch; ++sample) {
    const Passes alone = run(extent_of(1, 1025, 4, 1), sample_of(qkv, sample, extent.batch),
                             sample_of(dy, sample, extent.batch));
    BOOST_TEST((alone.y == sample_of(together.y, sample, extent.batch)));
    BOOST_TEST((alone.dqkv == sample_of(together.dqkv, sample, extent.batch)));
  }
}

BOOST_AUTO_TEST_CASE(a_nan_stays_in_its_sample_and_reaches_all_its_tokens) {
  const AttentionExtent extent = extent_of(2, 5, 1, 3);
  Values qkv = random_matrix(DataType::f32, input_of(extent), 1);
  const Values dy = random_matrix(DataType::f32, output_of(extent), 2);
  qkv.set(extent.padded_input * 2 + 3, std::numeric_limits<double>::quiet_NaN());  // of a key

  const Passes passes = run(extent, qkv, dy);

  for (std::int64_t i = 0; i < passes.y.size(); ++i) {
    const bool is_padding = i % extent.padded >= 3;
    const bool is_nan = !is_padding && i < passes.y.size() / 2;
    BOOST_TEST(std::isnan(passes.y[i]) == is_nan);
    if (is_padding) BOOST_TEST(passes.y[i] == 0.0);
  }
  for (std::int64_t i = 0; i < passes.dqkv.size(); ++i) {
    if (i % extent.padded_input >= 9) BOOST_TEST(passes.dqkv[i] == 0.0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
