#pragma once

#include "device_array.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/core/philox.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

/// Common code of the kernels' tests: values as a device stores them, read as doubles.
namespace lockstep::gpu {

inline constexpr std::array all_types{DataType::f32, DataType::bf16, DataType::f16};

inline std::ostream& operator<<(std::ostream& out, DataType type) {
  return out << (type == DataType::f32 ? "f32" : type == DataType::bf16 ? "bf16" : "f16");
}

/// The largest relative error of rounding to a type.
inline double rounding(DataType type) {
  return type == DataType::f32 ? 0x1p-24 : type == DataType::bf16 ? 0x1p-8 : 0x1p-11;
}

/// `count` values stored as `type`; each is NaN until it is written.
class Values {
 public:
  Values(DataType type, std::int64_t count)
      : type_(type), bytes_(poisoned_bytes(static_cast<std::size_t>(count) * size_of(type))) {}

  [[nodiscard]] DataType type() const { return type_; }
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(bytes_.size() / size_of(type_));
  }
  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] const void* data() const { return bytes_.data(); }
  [[nodiscard]] double operator[](std::int64_t i) const {
    switch (type_) {
      case DataType::f32:
        break;
      case DataType::bf16:
        return static_cast<double>(static_cast<float>(read<Bfloat16>(i)));
      case DataType::f16:
        return static_cast<double>(static_cast<float>(read<Float16>(i)));
    }
    return static_cast<double>(read<float>(i));
  }
  void set(std::int64_t i, double value) {
    const auto single = static_cast<float>(value);
    switch (type_) {
      case DataType::f32:
        return write(i, single);
      case DataType::bf16:
        return write(i, Bfloat16(single));
      case DataType::f16:
        return write(i, Float16(single));
    }
  }
  /// Compares the bits.
  friend bool operator==(const Values&, const Values&) = default;

 private:
  template <typename T>
  [[nodiscard]] T read(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.host().data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void write(std::int64_t i, T value) {
    std::memcpy(bytes_.host().data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  DataType type_;
  Mirrored<std::byte> bytes_;
};

/// Normal numbers that repeat after a prime number of them, for speed.
class Random {
 public:
  explicit Random(std::uint32_t which) : numbers_(10007) {
    PhiloxStream stream(17, RandomPurpose::synthetic_data, 0, which);
    for (double& number : numbers_) number = stream.next_normal();
  }
  double operator()() {
    at_ = (at_ + 1) % numbers_.size();
    return numbers_[at_];
  }

 private:
  std::vector<double> numbers_;
  std::size_t at_ = 0;
};

/// A (rows, padded) matrix of normal numbers, zero in the padding.
inline Values random_matrix(DataType type, const Matrix& extent, std::uint32_t which) {
  Random random(which);
  Values values(type, extent.rows * extent.padded);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values.set(i, i % extent.padded < extent.channels ? random() : 0.0);
  }
  return values;
}
/// (padded) fp32 values around `mean`, zero in the padding.
inline Mirrored<float> random_channels(const Matrix& extent, std::uint32_t which, double mean) {
  Random random(which);
  std::vector<float> values(static_cast<std::size_t>(extent.padded));
  for (std::int64_t c = 0; c < extent.channels; ++c) {
    values[static_cast<std::size_t>(c)] = static_cast<float>(mean + random() / 4);
  }
  return values;
}
inline Matrix matrix(std::int64_t rows, std::int64_t channels) {
  return {.rows = rows, .channels = channels, .padded = padded_channels(channels)};
}
/// Odd numbers of rows and channels; one row, one vec8, several thread blocks, blocks with idle
/// columns.
inline std::vector<Matrix> matrices() {
  return {matrix(1, 1),    matrix(1, 33),    matrix(2, 3),     matrix(7, 5),
          matrix(130, 8),  matrix(257, 17),  matrix(1000, 12), matrix(999, 33),
          matrix(5001, 4), matrix(601, 300), matrix(4099, 64)};
}
inline std::ostream& operator<<(std::ostream& out, const Matrix& extent) {
  return out << extent.rows << " x " << extent.channels << " (" << extent.padded << ")";
}

/// Whether `actual` differs from `expected` by at most the rounding of its type plus `slack`.
inline bool is_close(double actual, double expected, DataType type, double slack) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (actual == expected) return true;
  return std::abs(actual - expected) <= rounding(type) * std::abs(expected) + slack;
}
/// Reports only the first value that is not close.
template <typename Actual, typename Expected>
void check_close(const Actual& actual, const Expected& expected, std::int64_t count, DataType type,
                 double slack) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double got = actual(i);
    const double want = expected(i);
    if (!is_close(got, want, type, slack)) {
      BOOST_ERROR("value " << i << " is " << got << ", not " << want);
      return;
    }
  }
}
inline auto reader(const Values& values) {
  return [&values](std::int64_t i) { return values[i]; };
}
inline auto reader(const Mirrored<float>& values) {
  return [&values](std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
}
inline auto reader(const std::vector<double>& values) {
  return [&values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
}

}  // namespace lockstep::gpu
