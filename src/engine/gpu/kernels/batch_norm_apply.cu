#include "channel_norm.hpp"
#include "kernels.hpp"
#include "sample_drop.hpp"
#include "vec8_rows.hpp"

namespace lockstep::gpu {
namespace {

/// Rows that a thread loads together: 64 bytes.
template <typename T>
inline constexpr int depth = packed_size<T> / 2;

/// Reads the channels of a vec8.
struct ReadChannels {
  const Vec8Rows& extent;
  std::int64_t at;
  LOCKSTEP_HOST_DEVICE Vec8 operator()(const float* values) const {
    return load_channels(extent, values, at);
  }
};
template <typename T>
using Vec8Norm = ChannelNorm<T, vec8_size>;
template <typename T>
using Vec8Gradient = ChannelGradient<T, vec8_size>;

template <typename T, bool adds, bool adds_norm, bool drops>
struct Apply {
  Vec8Rows extent;
  ColumnItems items;
  const T* x;
  const T* residual;
  Normalization norm;
  Normalization residual_norm;
  bool relu;
  std::uint8_t* mask;
  T* y;

  struct Loaded {
    RawVec8<T> x;
    RawVec8<T> residual;
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const Vec8Column column = vec8_column(extent, item - chunk * items.columns);
    const ReadChannels read{extent, column.at};
    const auto channels = Vec8Norm<T>::load(norm, read);
    Vec8Norm<T> residual_channels{};
    if constexpr (adds_norm) residual_channels = Vec8Norm<T>::load(residual_norm, read);
    items.for_rows_of<adds || drops ? depth<T> / 2 : depth<T>>(
        chunk, column.rows,
        [&](std::int64_t row) {
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          Loaded loaded{read_vec8(x + at, whole), {}};
          if constexpr (adds) loaded.residual = read_vec8(residual + at, whole);
          return loaded;
        },
        [&](std::int64_t row, const Loaded& loaded) {
          Vec8 values = loaded.x.floats();
          channels.normalize(values);
          if constexpr (drops) drop_samples<T>(extent, norm.drop, row, column.at, values);
          if constexpr (adds) {
            Vec8 others = loaded.residual.floats();
            if constexpr (adds_norm) {
              residual_channels.normalize(others);
              if constexpr (drops)
                drop_samples<T>(extent, residual_norm.drop, row, column.at, others);
              others = packed<T>(others).floats();
            }
            for (int i = 0; i < vec8_size; ++i) values[i] += others[i];
          }
          if (relu) {
            for (int i = 0; i < vec8_size; ++i) values[i] = values[i] <= 0 ? 0.0F : values[i];
          }
          const RawVec8<T> result = packed<T>(values);
          const std::int64_t at = row * extent.width + column.at;
          write_vec8(y + at, result, row < column.whole_rows);
          if (mask != nullptr) mask[at / vec8_size] = positive(result, row < column.whole_rows);
        });
  }
  /// Mask bits of the stored (rounded) values.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static std::uint8_t positive(const RawVec8<T>& raw,
                                                                  bool whole) {
    const Vec8 values = raw.floats();
    unsigned bits = 0;
    for (int i = 0; i < vec8_size; ++i) bits |= values[i] > 0 ? 1U << i : 0U;
    return static_cast<std::uint8_t>(packed_size<T> == vec8_size || whole ? bits : bits & 0xFU);
  }
};

template <typename T, bool masked, bool adds_norm, bool drops>
struct BackwardApply {
  Vec8Rows extent;
  ColumnItems items;
  const T* dy;
  const std::uint8_t* mask;
  NormGradient norm;
  NormGradient added;
  float share;
  T* dz;

  struct Loaded {
    RawVec8<T> x;
    RawVec8<T> dy;
    std::uint32_t bits;
    RawVec8<T> added_x;
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const Vec8Column column = vec8_column(extent, item - chunk * items.columns);
    const ReadChannels read{extent, column.at};
    const auto channels = Vec8Gradient<T>::load(norm, share, read);
    Vec8Gradient<T> added_channels{};
    if constexpr (adds_norm) added_channels = Vec8Gradient<T>::load(added, share, read);
    items.for_rows_of<depth<T> / 2>(
        chunk, column.rows,
        [&](std::int64_t row) {
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          Loaded loaded{read_vec8(static_cast<const T*>(norm.x) + at, whole),
                        read_vec8(dy + at, whole),
                        masked ? mask[at / vec8_size] : 0xFFU,
                        {}};
          if constexpr (adds_norm) {
            loaded.added_x = read_vec8(static_cast<const T*>(added.x) + at, whole);
          }
          return loaded;
        },
        [&](std::int64_t row, const Loaded& loaded) {
          Vec8 g = loaded.dy.floats();
          for (int i = 0; i < vec8_size; ++i) {
            if (masked && (loaded.bits >> i & 1U) == 0) g[i] = 0;
          }
          const std::int64_t at = row * extent.width + column.at;
          const bool whole = row < column.whole_rows;
          if (dz != nullptr) write_vec8(dz + at, packed<T>(g), whole);
          Vec8 own_g = g;
          if constexpr (drops) drop_samples<T>(extent, norm.norm.drop, row, column.at, own_g);
          write_vec8(static_cast<T*>(norm.dx) + at,
                     packed<T>(channels.of(own_g, loaded.x.floats())), whole);
          if constexpr (adds_norm) {
            if constexpr (drops) drop_samples<T>(extent, added.norm.drop, row, column.at, g);
            write_vec8(static_cast<T*>(added.dx) + at,
                       packed<T>(added_channels.of(g, loaded.added_x.floats())), whole);
          }
        });
  }
};

template <typename T>
struct AddBias {
  Vec8Rows extent;
  ColumnItems items;
  const float* bias;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const Vec8Column column = vec8_column(extent, item - chunk * items.columns);
    const Vec8 addend = load_channels(extent, bias, column.at);
    items.for_rows_of<depth<T>>(
        chunk, column.rows,
        [&](std::int64_t row) {
          return read_vec8(y + row * extent.width + column.at, row < column.whole_rows);
        },
        [&](std::int64_t row, const RawVec8<T>& raw) {
          Vec8 values = raw.floats();
          for (int i = 0; i < vec8_size; ++i) values[i] += addend[i];
          write_vec8(y + row * extent.width + column.at, packed<T>(values),
                     row < column.whole_rows);
        });
  }
};

}  // namespace

void batch_norm_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                      const Normalization& norm, const NormalizeOptions& options, void* y) {
  const Vec8Rows rows = vec8_rows(extent);
  const ColumnItems items = column_items(rows);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<bool adds, bool adds_norm, bool drops>() {
      launch(stream, items.count(),
             Apply<T, adds, adds_norm, drops>{rows, items, static_cast<const T*>(x),
                                              static_cast<const T*>(options.residual), norm,
                                              adds_norm ? *options.residual_norm : Normalization{},
                                              options.relu, options.mask, static_cast<T*>(y)});
    };
    with_flags<>(start, options.residual != nullptr, options.residual_norm != nullptr,
                 drops_samples(norm, options.residual_norm));
  });
}

void batch_norm_backward_apply(Stream stream, DataType type, const Matrix& extent, const void* dy,
                               const std::uint8_t* mask, double elements, const NormGradient& of,
                               const NormGradient* added, void* dz) {
  const Vec8Rows rows = vec8_rows(extent);
  const ColumnItems items = column_items(rows);
  const auto share = static_cast<float>(1.0 / elements);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<bool masked, bool adds_norm, bool drops>() {
      launch(stream, items.count(),
             BackwardApply<T, masked, adds_norm, drops>{
                 rows, items, static_cast<const T*>(dy), mask, of,
                 adds_norm ? *added : NormGradient{}, share, static_cast<T*>(dz)});
    };
    with_flags<>(start, mask != nullptr, added != nullptr,
                 drops_samples(of.norm, added != nullptr ? &added->norm : nullptr));
  });
}

void add_bias(Stream stream, DataType type, const Matrix& extent, const float* bias, void* y) {
  const Vec8Rows rows = vec8_rows(extent);
  const ColumnItems items = column_items(rows);
  with_type(type, [&]<typename T>(T*) {
    launch(stream, items.count(), AddBias<T>{rows, items, bias, static_cast<T*>(y)});
  });
}

}  // namespace lockstep::gpu
