#include "stored_array.hpp"

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::array kinds{ElementKind{"fp32", "FloatStorage", "F32", 4, true},
                           ElementKind{"fp16", "HalfStorage", "F16", 2, true},
                           ElementKind{"bf16", "BFloat16Storage", "BF16", 2, true},
                           ElementKind{"fp64", "DoubleStorage", "F64", 8, true},
                           ElementKind{"int64", "LongStorage", "I64", 8, false},
                           ElementKind{"int32", "IntStorage", "I32", 4, false},
                           ElementKind{"int16", "ShortStorage", "I16", 2, false},
                           ElementKind{"int8", "CharStorage", "I8", 1, false},
                           ElementKind{"uint8", "ByteStorage", "U8", 1, false},
                           ElementKind{"bool", "BoolStorage", "BOOL", 1, false}};

constexpr std::int64_t most = std::int64_t{1} << 62;

template <typename Stored, typename Convert>
void append(const std::byte* bytes, std::size_t count, std::vector<float>& values,
            const Convert& convert) {
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * sizeof(Stored), sizeof(Stored));
    values.push_back(convert(stored));
  }
}

template <typename Number>
float from_bits(std::uint16_t bits) {
  Number number;
  number.bits = bits;
  return static_cast<float>(number);
}

}  // namespace

const ElementKind* kind_of_storage(std::string_view storage) noexcept {
  const auto* const found = std::ranges::find(kinds, storage, &ElementKind::storage);
  return found == kinds.end() ? nullptr : found;
}

const ElementKind* kind_of_short_name(std::string_view short_name) noexcept {
  const auto* const found = std::ranges::find(kinds, short_name, &ElementKind::short_name);
  return found == kinds.end() ? nullptr : found;
}

void append_floats(const ElementKind& kind, const std::byte* bytes, std::size_t count,
                   std::vector<float>& values) {
  if (kind.name == "fp32") {
    append<float>(bytes, count, values, [](float value) { return value; });
  } else if (kind.name == "fp64") {
    append<double>(bytes, count, values, [](double value) { return static_cast<float>(value); });
  } else if (kind.name == "fp16") {
    append<std::uint16_t>(bytes, count, values, from_bits<Float16>);
  } else {
    append<std::uint16_t>(bytes, count, values, from_bits<Bfloat16>);
  }
}

std::optional<std::int64_t> elements_of(const std::vector<std::int64_t>& extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    // As if no extent were 0, for whom strides are products of the others.
    const std::int64_t factor = std::max<std::int64_t>(1, extent);
    if (__builtin_mul_overflow(product, factor, &product) || product >= most) return std::nullopt;
  }
  return std::ranges::find(extents, 0) == extents.end() ? product : 0;
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t axis = extents.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(1, extents[axis]);
  }
  return strides;
}

std::optional<std::int64_t> span_of(const StoredArray& array) {
  std::int64_t span = 1;
  for (std::size_t axis = 0; axis < array.extents.size(); ++axis) {
    if (array.extents[axis] == 0) return 0;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(array.extents[axis] - 1, array.strides[axis], &reach) ||
        __builtin_add_overflow(span, reach, &span) || span >= most) {
      return std::nullopt;
    }
  }
  return span;
}

std::string extents_text(const std::vector<std::int64_t>& extents) {
  return extents.empty() ? "scalar" : fmt::format("{}", fmt::join(extents, "x"));
}

}  // namespace lockstep
