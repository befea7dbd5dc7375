#include "../../src/engine/cpu/norm_passes.hpp"
#include "lockstep/core/bfloat16.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

using namespace lockstep;
using namespace lockstep::cpu;

// CTest runs this program once per instruction set of the processor (LOCKSTEP_TEST_VECTORS).

namespace {

constexpr int threads = 2;

struct Layout {
  Dims dims;
  Tag tag;
};

const std::vector<Layout> layouts{
    {.dims = {3, 1, 5, 3}, .tag = Tag::nhwc},     {.dims = {2, 3, 4, 4}, .tag = Tag::nhwc},
    {.dims = {2, 20, 5, 7}, .tag = Tag::nhwc},    {.dims = {1, 55, 9, 3}, .tag = Tag::nhwc},
    {.dims = {3, 64, 7, 7}, .tag = Tag::nhwc},    {.dims = {5, 48, 14, 14}, .tag = Tag::nhwc},
    {.dims = {9, 33, 1, 1}, .tag = Tag::nhwc},    {.dims = {9, 33, 1, 1}, .tag = Tag::nchw},
    {.dims = {2, 16, 3, 5}, .tag = Tag::nChw16c}, {.dims = {3, 20, 7, 7}, .tag = Tag::nChw16c},
    {.dims = {2, 48, 9, 8}, .tag = Tag::nChw16c}, {.dims = {4, 32, 16, 17}, .tag = Tag::nChw16c},
    {.dims = {2, 8, 3, 5}, .tag = Tag::nChw8c},   {.dims = {5, 21, 13, 13}, .tag = Tag::nChw8c},
};

float as_stored(float value, float) {
  return value;
}
float as_stored(float value, Bfloat16) {
  return float{Bfloat16(value)};
}

/// (N, C, H, W) values in a memory layout, with zeros as padding.
template <typename T>
struct Tensor {
  Desc desc;
  std::vector<T> values;

  explicit Tensor(const Desc& of) : desc(of), values(padded_size(of), T(0.0F)) {}
  /// Calls visit(value, channel, where) for each element.
  template <typename Visit>
  void for_each(const Visit& visit) {
    const Dims dims = dims_of(desc);
    const auto plane = static_cast<std::size_t>(dims[2] * dims[3]);
    element_offsets(desc).for_each([&](std::size_t plain, std::size_t offset) {
      visit(values[offset], plain / plane % static_cast<std::size_t>(dims[1]), offset);
    });
  }
  void fill(std::uint32_t seed) {
    for_each([&](T& value, std::size_t, std::size_t) {
      seed = seed * 1664525 + 1013904223;
      value = T(static_cast<float>(static_cast<int>(seed >> 16) % 2001 - 1000) / 500.0F);
    });
  }
};

/// Values by channel, with zeros as padding.
std::vector<float> by_channel(const NormPasses& passes, float first, float step) {
  std::vector<float> values(static_cast<std::size_t>(passes.rows().padded_channels()));
  for (std::int64_t c = 0; c < passes.rows().channels(); ++c) {
    values[static_cast<std::size_t>(c)] = first + step * static_cast<float>(c % 7);
  }
  return values;
}

struct Sums {
  std::vector<double> first;
  std::vector<double> second;
  explicit Sums(std::size_t channels) : first(channels), second(channels) {}
};

void check_near(std::span<const double> got, const Sums& expected, double magnitude) {
  const std::size_t channels = expected.first.size();
  for (std::size_t c = 0; c < channels; ++c) {
    BOOST_TEST(std::abs(got[c] - expected.first[c]) <= 1e-6 * magnitude);
    BOOST_TEST(std::abs(got[channels + c] - expected.second[c]) <= 1e-6 * magnitude);
  }
}

template <typename Check>
void for_each_case(const Check& check) {
  for (const Layout& layout : layouts) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      const Desc desc(layout.dims, type, layout.tag);
      BOOST_TEST_CONTEXT("channels " << layout.dims[1] << ", pixels "
                                     << layout.dims[2] * layout.dims[3] << ", width "
                                     << ChannelRows(desc).width() << ", bytes per value "
                                     << (type == DataType::f32 ? 4 : 2)) {
        if (type == DataType::f32) {
          check(desc, 0.0F);
        } else {
          check(desc, Bfloat16());
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_are_summed_by_channel) {
  for_each_case([]<typename T>(const Desc& desc, T) {
    NormPasses passes(desc, threads);
    Tensor<T> source(desc);
    source.fill(1);
    std::vector<float> reference = by_channel(passes, 0, 0);
    passes.first_values(source.values.data(), reference.data());
    const auto channels = static_cast<std::size_t>(passes.rows().channels());
    std::vector<bool> seen(channels);
    Sums expected(channels);
    source.for_each([&](T& value, std::size_t c, std::size_t) {
      if (!seen[c]) BOOST_TEST(reference[c] == float{value});
      seen[c] = true;
      const double centred = double{float{value}} - double{reference[c]};
      expected.first[c] += centred;
      expected.second[c] += centred * centred;
    });
    check_near(passes.sum_values(source.values.data(), reference.data()), expected,
               16 * passes.rows().count());
  });
}

BOOST_AUTO_TEST_CASE(values_are_normalised_added_to_and_masked) {
  for_each_case([]<typename T>(const Desc& desc, T type) {
    NormPasses passes(desc, threads);
    Tensor<T> source(desc);
    Tensor<T> addend(desc);
    source.fill(1);
    addend.fill(2);
    const std::vector<float> mean = by_channel(passes, 0.25F, 0.0625F);
    const std::vector<float> slope = by_channel(passes, -1.5F, 0.75F);
    const std::vector<float> offset = by_channel(passes, 0.5F, -0.375F);
    for (const bool adds : {false, true}) {
      for (const bool relu : {false, true}) {
        std::vector<std::uint8_t> mask(static_cast<std::size_t>(passes.rows().mask_bytes()), 0xA5);
        Tensor<T> target = adds ? addend : source;  // in place of one of them
        passes.normalize({.source = adds ? source.values.data() : target.values.data(),
                          .addend = adds ? target.values.data() : nullptr,
                          .mean = mean.data(),
                          .slope = slope.data(),
                          .offset = offset.data(),
                          .relu = relu,
                          .mask = relu ? mask.data() : nullptr,
                          .target = target.values.data()});
        Tensor<T> expected(desc);
        Tensor<T> passed(desc);  // 1 where the ReLU passes a value
        source.for_each([&](T& from, std::size_t c, std::size_t at) {
          float value = (float{from} - mean[c]) * slope[c] + offset[c];
          if (adds) value += float{addend.values[at]};
          passed.values[at] = T(!relu || value > 0 ? 1.0F : 0.0F);
          expected.values[at] = T(as_stored(relu && value < 0 ? 0.0F : value, type));
        });
        BOOST_TEST((target.values == expected.values));
        // The effect of the mask in backward.
        Tensor<T> ones(desc);
        ones.for_each([](T& value, std::size_t, std::size_t) { value = T(1.0F); });
        Tensor<T> masked(desc);
        static_cast<void>(passes.sum_gradients({.source = source.values.data(),
                                                .gradient = ones.values.data(),
                                                .addend = nullptr,
                                                .mean = mean.data(),
                                                .mask = relu ? mask.data() : nullptr,
                                                .masked = masked.values.data()}));
        BOOST_TEST((masked.values == passed.values));
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(gradients_are_masked_summed_and_propagated) {
  for_each_case([]<typename T>(const Desc& desc, T type) {
    NormPasses passes(desc, threads);
    Tensor<T> source(desc);
    Tensor<T> gradient(desc);
    Tensor<T> addend(desc);
    source.fill(1);
    gradient.fill(3);
    addend.fill(4);
    const auto channels = static_cast<std::size_t>(passes.rows().channels());
    const std::vector<float> mean = by_channel(passes, 0.25F, 0.0625F);
    const std::vector<float> one = by_channel(passes, 1, 0);
    const std::vector<float> slope = by_channel(passes, -1.5F, 0.75F);
    const std::vector<float> offset = by_channel(passes, 0.5F, -0.375F);
    const std::vector<float> factor = by_channel(passes, 0.75F, 0.125F);
    // Sets the mask's bits where source > mean.
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(passes.rows().mask_bytes()));
    Tensor<T> unused(desc);
    const std::vector<float> none = by_channel(passes, 0, 0);
    passes.normalize({.source = source.values.data(),
                      .addend = nullptr,
                      .mean = mean.data(),
                      .slope = one.data(),
                      .offset = none.data(),
                      .relu = true,
                      .mask = mask.data(),
                      .target = unused.values.data()});
    for (const bool masks : {false, true}) {
      for (const bool adds : {false, true}) {
        for (const bool stores : {false, true}) {
          if (adds && !stores) continue;
          Tensor<T> expected(desc);
          Tensor<T> propagated(desc);
          Sums sums(channels);
          source.for_each([&](T& from, std::size_t c, std::size_t at) {
            float value{gradient.values[at]};
            if (adds) value = as_stored(value + float{addend.values[at]}, type);
            if (masks && !(float{from} > mean[c])) value = 0;
            expected.values[at] = T(value);
            const float centred = float{from} - mean[c];
            propagated.values[at] = T(factor[c] * value + slope[c] * centred + offset[c]);
            sums.first[c] += double{value};
            sums.second[c] += double{value} * double{centred};
          });
          Tensor<T> masked = gradient;  // in place
          Tensor<T> target = source;
          check_near(passes.sum_gradients({.source = source.values.data(),
                                           .gradient = masked.values.data(),
                                           .addend = adds ? addend.values.data() : nullptr,
                                           .mean = mean.data(),
                                           .mask = masks ? mask.data() : nullptr,
                                           .masked = stores ? masked.values.data() : nullptr}),
                     sums, 16 * passes.rows().count());
          BOOST_TEST((masked.values == (stores ? expected.values : gradient.values)));
          passes.propagate({.source = target.values.data(),
                            .gradient = masked.values.data(),
                            .mask = masks && !stores ? mask.data() : nullptr,
                            .mean = mean.data(),
                            .slope = slope.data(),
                            .offset = offset.data(),
                            .factor = factor.data(),
                            .target = target.values.data()});
          BOOST_TEST((target.values == propagated.values));
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(nan_stays_nan) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    const Desc desc(Dims{1, 16, 3, 3}, type, Tag::nhwc);
    NormPasses passes(desc, threads);
    const std::vector<float> one = by_channel(passes, 1, 0);
    const auto check = [&]<typename T>(T) {
      Tensor<T> values(desc);
      values.fill(1);
      values.values[5] = T(std::nanf(""));
      passes.normalize({.source = values.values.data(),
                        .addend = nullptr,
                        .mean = one.data(),
                        .slope = one.data(),
                        .offset = one.data(),
                        .relu = true,
                        .mask = nullptr,
                        .target = values.values.data()});
      BOOST_TEST(std::isnan(float{values.values[5]}));
      BOOST_TEST(!std::isnan(float{values.values[4]}));
    };
    type == DataType::f32 ? check(0.0F) : check(Bfloat16());
  }
}

BOOST_AUTO_TEST_CASE(channel_rows_need_dense_tensors_with_adjacent_channels) {
  const Dims dims{2, 20, 5, 7};
  BOOST_TEST(ChannelRows::fits(Desc(dims, DataType::f32, Tag::nhwc)));
  BOOST_TEST(ChannelRows::fits(Desc(dims, DataType::f32, Tag::nChw8c)));
  BOOST_TEST(ChannelRows::fits(Desc(dims, DataType::f32, Tag::nChw16c)));
  BOOST_TEST(!ChannelRows::fits(Desc(dims, DataType::f32, Tag::nchw)));
  const Desc whole(dims, DataType::f32, Tag::nhwc);
  BOOST_TEST(!ChannelRows::fits(whole.submemory_desc({2, 10, 5, 7}, {0, 0, 0, 0})));
  BOOST_TEST(!ChannelRows::fits(whole.submemory_desc({2, 20, 5, 6}, {0, 0, 0, 0})));
}
