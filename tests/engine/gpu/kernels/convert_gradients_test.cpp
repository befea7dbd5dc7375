#include "kernel_values.hpp"

using namespace lockstep::gpu;

namespace {

/// Tensors of one item, a thread block and several, apart from each other in an arena.
struct Tensors {
  std::vector<Values> values;
  std::vector<std::int64_t> offsets;
  std::int64_t arena_size = 16;

  Tensors(DataType type, std::size_t count) {
    constexpr std::array<std::int64_t, 5> sizes{2048, 8, 2056, 24, 40008};
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t size = sizes[i % sizes.size()];
      values.push_back(random_matrix(type, {.rows = 1, .channels = size, .padded = size},
                                     static_cast<std::uint32_t>(i)));
      offsets.push_back(arena_size);
      arena_size += (size + 31) / 16 * 16;
    }
  }
  [[nodiscard]] Values converted_into(const Values& before, bool adds) const {
    Values arena = before;
    std::vector<GradientConversion> conversions;
    float* const places = static_cast<float*>(arena.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      conversions.push_back({.from = values[i].data(),
                             .to = places + offsets[i],
                             .count = static_cast<std::size_t>(values[i].size())});
    }
    convert_gradients(kernel_stream(), values.front().type(), conversions, adds);
    return arena;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(gradient_conversion)

BOOST_AUTO_TEST_CASE(each_tensor_is_written_or_added_to_its_place) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const std::size_t count : {1, 2, 63, 64, 65, 150}) {  // a launch takes 64
      const Tensors tensors(type, count);
      const std::int64_t size = tensors.arena_size;
      const Values before =
          random_matrix(DataType::f32, {.rows = 1, .channels = size, .padded = size}, 1000);
      for (const bool adds : {false, true}) {
        Values expected = before;
        for (std::size_t i = 0; i < count; ++i) {
          const Values& values = tensors.values[i];
          for (std::int64_t j = 0; j < values.size(); ++j) {
            const std::int64_t at = tensors.offsets[i] + j;
            const auto value = static_cast<float>(values[j]);
            expected.set(at, adds ? static_cast<float>(before[at]) + value : value);
          }
        }

        const Values found = tensors.converted_into(before, adds);

        BOOST_TEST((found == expected), type << ", " << count << (adds ? ", adds" : ""));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
