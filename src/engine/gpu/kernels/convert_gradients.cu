#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <type_traits>

namespace lockstep::gpu {
namespace {

/// Values per item.
constexpr int width = 8;

/// Tensors of one launch. A power of two; their table is an argument of the kernel, at most 4 KiB.
constexpr int max_tensors = 64;

/// One item per `width` values; a tensor's items follow those of the tensor before it.
template <typename From, bool adds>
struct ConvertGradients {
  enum : std::size_t { item_bytes = width * (sizeof(From) + (adds ? 2 : 1) * sizeof(float)) };
  struct Tensor {
    std::int64_t begin;  ///< its first item; larger than all items for unused entries
    const From* from;
    float* to;
  };
  Tensor tensors[max_tensors];

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    int tensor = 0;
    for (int step = max_tensors / 2; step > 0; step /= 2) {
      if (tensors[tensor + step].begin <= item) tensor += step;
    }
    const std::int64_t at = (item - tensors[tensor].begin) * width;
    float* const to = tensors[tensor].to + at;
    Floats<width> values = load<width>(tensors[tensor].from + at);
    if constexpr (adds) {
      const Floats<width> before = load<width>(to);
      for (int i = 0; i < width; ++i) values[i] = before[i] + values[i];
    }
    store<width>(to, values);
  }
};

template <typename From, bool adds>
void convert_some(Stream stream, std::span<const GradientConversion> conversions) {
  ConvertGradients<From, adds> functor;
  std::int64_t items = 0;
  for (std::size_t i = 0; i < max_tensors; ++i) {
    if (i >= conversions.size()) {
      functor.tensors[i] = {std::numeric_limits<std::int64_t>::max(), nullptr, nullptr};
      continue;
    }
    const GradientConversion& each = conversions[i];
    assert(each.count % width == 0);
    functor.tensors[i] = {items, static_cast<const From*>(each.from), each.to};
    items += static_cast<std::int64_t>(each.count) / width;
  }
  launch(stream, items, functor);
}

}  // namespace

void convert_gradients(Stream stream, DataType type,
                       std::span<const GradientConversion> conversions, bool adds) {
  assert(type != DataType::f32);
  with_type(type, [&]<typename From>(From*) {
    if constexpr (!std::is_same_v<From, float>) {
      with_flags(
          [&]<bool known_adds>() {
            for (auto rest = conversions; !rest.empty();) {
              const auto some = rest.first(std::min(rest.size(), std::size_t{max_tensors}));
              convert_some<From, known_adds>(stream, some);
              rest = rest.subspan(some.size());
            }
          },
          adds);
    }
  });
}

}  // namespace lockstep::gpu
