#include "kernels.hpp"
#include "octet_rows.hpp"

#include <cmath>

namespace lockstep::cuda {
namespace {

/// Rows a thread has under way: 64 bytes.
template <typename T>
inline constexpr int depth = piece_size<T> / 2;

LOCKSTEP_HOST_DEVICE float inverse_deviation(float variance, float eps) {
  return 1.0F / std::sqrt(variance + eps);
}

template <typename T, bool adds>
struct Apply {
  OctetRows extent;
  ColumnItems items;
  const T* x;
  const T* residual;
  Normalization norm;
  bool relu;
  std::uint8_t* mask;
  T* y;

  struct Loaded {
    RawOctet<T> x;
    RawOctet<T> residual;
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const OctetColumn column = octet_column(extent, item - chunk * items.columns);
    const Octet mean = load_channels(extent, norm.mean, column.at);
    const Octet bias = load_channels(extent, norm.bias, column.at);
    Octet scale = load_channels(extent, norm.weight, column.at);
    const Octet variance = load_channels(extent, norm.variance, column.at);
    for (int i = 0; i < octet; ++i) scale[i] *= inverse_deviation(variance[i], norm.eps);
    for_rows<adds ? depth<T> / 2 : depth<T>>(
        chunk, items.chunks, column.rows,
        [&](std::int64_t row) {
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          Loaded loaded{read_octet(x + at, whole), {}};
          if constexpr (adds) loaded.residual = read_octet(residual + at, whole);
          return loaded;
        },
        [&](std::int64_t row, const Loaded& loaded) {
          Octet values = loaded.x.floats();
          for (int i = 0; i < octet; ++i) values[i] = (values[i] - mean[i]) * scale[i] + bias[i];
          if constexpr (adds) {
            const Octet others = loaded.residual.floats();
            for (int i = 0; i < octet; ++i) values[i] += others[i];
          }
          if (relu) {
            for (int i = 0; i < octet; ++i) values[i] = values[i] <= 0 ? 0.0F : values[i];
          }
          const RawOctet<T> result = packed<T>(values);
          const std::int64_t at = row * extent.width + column.at;
          write_octet(y + at, result, row < column.whole_rows);
          if (mask != nullptr) mask[at / octet] = positive(result, row < column.whole_rows);
        });
  }
  /// Of the values as they are stored.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static std::uint8_t positive(const RawOctet<T>& raw,
                                                                  bool whole) {
    const Octet values = raw.floats();
    unsigned bits = 0;
    for (int i = 0; i < octet; ++i) bits |= values[i] > 0 ? 1U << i : 0U;
    return static_cast<std::uint8_t>(piece_size<T> == octet || whole ? bits : bits & 0xFU);
  }
};

template <typename T, bool masked>
struct BackwardApply {
  OctetRows extent;
  ColumnItems items;
  const T* x;
  const T* dy;
  const std::uint8_t* mask;
  Normalization norm;
  const float* weight_gradient;
  const float* bias_gradient;
  float share;  ///< of a value in the means: 1 / elements
  T* dx;
  T* dz;

  struct Loaded {
    RawOctet<T> x;
    RawOctet<T> dy;
    std::uint32_t bits;
  };
  /// dx = scale * (g - mean_gradient - (x - mean) * slope)
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const OctetColumn column = octet_column(extent, item - chunk * items.columns);
    const Octet mean = load_channels(extent, norm.mean, column.at);
    const Octet variance = load_channels(extent, norm.variance, column.at);
    Octet scale = load_channels(extent, norm.weight, column.at);
    Octet slope = load_channels(extent, weight_gradient, column.at);
    Octet mean_gradient = load_channels(extent, bias_gradient, column.at);
    for (int i = 0; i < octet; ++i) {
      const float inverse = inverse_deviation(variance[i], norm.eps);
      scale[i] *= inverse;
      slope[i] *= inverse * share;
      mean_gradient[i] *= share;
    }
    for_rows<depth<T> / 2>(
        chunk, items.chunks, column.rows,
        [&](std::int64_t row) {
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          return Loaded{read_octet(x + at, whole), read_octet(dy + at, whole),
                        masked ? mask[at / octet] : 0xFFU};
        },
        [&](std::int64_t row, const Loaded& loaded) {
          const Octet values = loaded.x.floats();
          Octet g = loaded.dy.floats();
          Octet result;
          for (int i = 0; i < octet; ++i) {
            if (masked && (loaded.bits >> i & 1U) == 0) g[i] = 0;
            result[i] = scale[i] * (g[i] - mean_gradient[i] - (values[i] - mean[i]) * slope[i]);
          }
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          if (dz != nullptr) write_octet(dz + at, packed<T>(g), whole);
          write_octet(dx + at, packed<T>(result), whole);
        });
  }
};

template <typename T>
struct AddBias {
  OctetRows extent;
  ColumnItems items;
  const float* bias;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const OctetColumn column = octet_column(extent, item - chunk * items.columns);
    const Octet addend = load_channels(extent, bias, column.at);
    for_rows<depth<T>>(
        chunk, items.chunks, column.rows,
        [&](std::int64_t row) {
          return read_octet(y + row * extent.width + column.at, row < column.whole_rows);
        },
        [&](std::int64_t row, const RawOctet<T>& raw) {
          Octet values = raw.floats();
          for (int i = 0; i < octet; ++i) values[i] += addend[i];
          write_octet(y + row * extent.width + column.at, packed<T>(values),
                      row < column.whole_rows);
        });
  }
};

}  // namespace

void batch_norm_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                      const Normalization& norm, const NormalizeOptions& options, void* y) {
  const OctetRows rows = octet_rows(extent);
  const ColumnItems items = column_items(rows);
  with_type(type, [&]<typename T>(T*) {
    const auto* const values = static_cast<const T*>(x);
    const auto* const residual = static_cast<const T*>(options.residual);
    auto* const out = static_cast<T*>(y);
    if (residual != nullptr) {
      launch(stream, items.count(),
             Apply<T, true>{rows, items, values, residual, norm, options.relu, options.mask, out});
    } else {
      launch(stream, items.count(),
             Apply<T, false>{rows, items, values, nullptr, norm, options.relu, options.mask, out});
    }
  });
}

void batch_norm_backward_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                               const void* dy, const std::uint8_t* mask, const Normalization& norm,
                               const float* weight_gradient, const float* bias_gradient,
                               double elements, void* dx, void* dz) {
  const OctetRows rows = octet_rows(extent);
  const ColumnItems items = column_items(rows);
  const auto share = static_cast<float>(1.0 / elements);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<typename Functor>(Functor) {
      launch(
          stream, items.count(),
          Functor{rows, items, static_cast<const T*>(x), static_cast<const T*>(dy), mask, norm,
                  weight_gradient, bias_gradient, share, static_cast<T*>(dx), static_cast<T*>(dz)});
    };
    if (mask != nullptr) {
      start(BackwardApply<T, true>{});
    } else {
      start(BackwardApply<T, false>{});
    }
  });
}

void add_bias(Stream stream, DataType type, const Matrix& extent, const float* bias, void* y) {
  const OctetRows rows = octet_rows(extent);
  const ColumnItems items = column_items(rows);
  with_type(type, [&]<typename T>(T*) {
    launch(stream, items.count(), AddBias<T>{rows, items, bias, static_cast<T*>(y)});
  });
}

}  // namespace lockstep::cuda
