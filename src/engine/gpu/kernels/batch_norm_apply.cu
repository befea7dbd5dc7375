#include "channel_norm.hpp"
#include "kernels.hpp"
#include "sample_drop.hpp"
#include "vec8_rows.hpp"

#include <cassert>

namespace lockstep::gpu {
namespace {

/// Rows that a thread loads together: 64 bytes.
template <typename T>
inline constexpr int depth = packed_size<T> / 2;

template <typename T>
using Vec8Norm = ChannelNorm<T, vec8_size>;
template <typename T>
using Vec8Gradient = ChannelGradient<T, vec8_size>;

/// What is added to the norm's output.
enum class Addend { none, values, norm };

template <typename T, Addend addend>
struct Apply {
  static constexpr bool adds = addend != Addend::none;
  static constexpr bool adds_norm = addend == Addend::norm;
  Matrix extent;
  ColumnItems items;
  const T* x;
  const T* residual;
  Normalization norm;
  Normalization residual_norm;
  SampleDrop drop;  ///< of the added norm if there is one
  bool relu;
  std::uint8_t* mask;
  T* y;

  struct Loaded {
    RawVec8<T> x;
    RawVec8<T> residual;
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const std::int64_t channel = (item - chunk * items.columns) * vec8_size;
    const ReadFrom<vec8_size> read{channel};
    const auto channels = Vec8Norm<T>::load(norm, read);
    Vec8Norm<T> residual_channels{};
    if constexpr (adds_norm) residual_channels = Vec8Norm<T>::load(residual_norm, read);
    const auto apply = [&]<bool drops>() {
      items.for_rows_of<drops  ? 1
                        : adds ? depth<T> / 2
                               : depth<T>>(
          chunk, extent.rows,
          [&](std::int64_t row) {
            const std::int64_t at = row * extent.padded + channel;
            Loaded loaded{read_vec8(x + at), {}};
            if constexpr (adds) loaded.residual = read_vec8(residual + at);
            return loaded;
          },
          [&](std::int64_t row, const Loaded& loaded) {
            Vec8 values = loaded.x.floats();
            channels.normalize(values);
            if constexpr (drops && !adds_norm) drop_samples(drop, row, values);
            if constexpr (adds) {
              Vec8 others = loaded.residual.floats();
              if constexpr (adds_norm) {
                residual_channels.normalize(others);
                if constexpr (drops) drop_samples(drop, row, others);
                others = packed<T>(others).floats();
              }
              for (int i = 0; i < vec8_size; ++i) values[i] += others[i];
            }
            if (relu) {
              for (int i = 0; i < vec8_size; ++i) values[i] = values[i] <= 0 ? 0.0F : values[i];
            }
            const RawVec8<T> result = packed<T>(values);
            const std::int64_t at = row * extent.padded + channel;
            write_vec8(y + at, result);
            if (mask != nullptr) mask[at / vec8_size] = positive(result);
          });
    };
    with_drops(drop, apply);
  }
  /// Mask bits of the stored (rounded) values.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static std::uint8_t positive(const RawVec8<T>& raw) {
    const Vec8 values = raw.floats();
    unsigned bits = 0;
    for (int i = 0; i < vec8_size; ++i) bits |= values[i] > 0 ? 1U << i : 0U;
    return static_cast<std::uint8_t>(bits);
  }
};

template <typename T, bool masked, bool adds_norm>
struct BackwardApply {
  Matrix extent;
  ColumnItems items;
  const T* dy;
  const std::uint8_t* mask;
  NormGradient norm;
  NormGradient added;
  SampleDrop drop;  ///< of the added norm if there is one
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
    const std::int64_t channel = (item - chunk * items.columns) * vec8_size;
    const ReadFrom<vec8_size> read{channel};
    const auto channels = Vec8Gradient<T>::load(norm, share, read);
    Vec8Gradient<T> added_channels{};
    if constexpr (adds_norm) added_channels = Vec8Gradient<T>::load(added, share, read);
    const auto apply = [&]<bool drops>() {
      items.for_rows_of<drops ? 1 : depth<T> / 2>(
          chunk, extent.rows,
          [&](std::int64_t row) {
            const std::int64_t at = row * extent.padded + channel;
            Loaded loaded{read_vec8(static_cast<const T*>(norm.x) + at),
                          read_vec8(dy + at),
                          masked ? mask[at / vec8_size] : 0xFFU,
                          {}};
            if constexpr (adds_norm) {
              loaded.added_x = read_vec8(static_cast<const T*>(added.x) + at);
            }
            return loaded;
          },
          [&](std::int64_t row, const Loaded& loaded) {
            Vec8 g = loaded.dy.floats();
            for (int i = 0; i < vec8_size; ++i) {
              if (masked && (loaded.bits >> i & 1U) == 0) g[i] = 0;
            }
            const std::int64_t at = row * extent.padded + channel;
            if constexpr (!adds_norm) {
              if (masked && dz != nullptr) store<vec8_size>(dz + at, g);
              if constexpr (drops) drop_samples(drop, row, g);
            }
            store<vec8_size>(static_cast<T*>(norm.dx) + at, channels.of(g, loaded.x.floats()));
            if constexpr (adds_norm) {
              if constexpr (drops) drop_samples(drop, row, g);
              store<vec8_size>(static_cast<T*>(added.dx) + at,
                               added_channels.of(g, loaded.added_x.floats()));
            }
          });
    };
    with_drops(drop, apply);
  }
};

template <typename T>
struct AddBias {
  Matrix extent;
  ColumnItems items;
  const float* bias;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const std::int64_t channel = (item - chunk * items.columns) * vec8_size;
    const Vec8 addend = load<vec8_size>(bias + channel);
    items.for_rows_of<depth<T>>(
        chunk, extent.rows,
        [&](std::int64_t row) { return read_vec8(y + row * extent.padded + channel); },
        [&](std::int64_t row, const RawVec8<T>& raw) {
          Vec8 values = raw.floats();
          for (int i = 0; i < vec8_size; ++i) values[i] += addend[i];
          store<vec8_size>(y + row * extent.padded + channel, values);
        });
  }
};

}  // namespace

void batch_norm_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                      const Normalization& norm, const NormalizeOptions& options, void* y) {
  const ColumnItems items = column_items(extent);
  const SampleDrop& drop = drop_of(norm, options.residual_norm);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<Addend addend>() {
      constexpr bool adds_norm = addend == Addend::norm;
      launch(stream, items.count(),
             Apply<T, addend>{extent, items, static_cast<const T*>(x),
                              static_cast<const T*>(options.residual), norm,
                              adds_norm ? *options.residual_norm : Normalization{}, drop,
                              options.relu, options.mask, static_cast<T*>(y)});
    };
    if (options.residual_norm != nullptr) return start.template operator()<Addend::norm>();
    if (options.residual != nullptr) return start.template operator()<Addend::values>();
    start.template operator()<Addend::none>();
  });
}

void batch_norm_backward_apply(Stream stream, DataType type, const Matrix& extent, const void* dy,
                               const std::uint8_t* mask, double elements, const NormGradient& of,
                               const NormGradient* added, void* dz) {
  assert(dz == nullptr || (mask != nullptr && added == nullptr));
  const ColumnItems items = column_items(extent);
  const auto share = static_cast<float>(1.0 / elements);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<bool masked, bool adds_norm>() {
      launch(stream, items.count(),
             BackwardApply<T, masked, adds_norm>{
                 extent, items, static_cast<const T*>(dy), mask, of,
                 adds_norm ? *added : NormGradient{},
                 drop_of(of.norm, adds_norm ? &added->norm : nullptr), share, static_cast<T*>(dz)});
    };
    with_flags<>(start, mask != nullptr, added != nullptr);
  });
}

void add_bias(Stream stream, DataType type, const Matrix& extent, const float* bias, void* y) {
  const ColumnItems items = column_items(extent);
  with_type(type, [&]<typename T>(T*) {
    launch(stream, items.count(), AddBias<T>{extent, items, bias, static_cast<T*>(y)});
  });
}

}  // namespace lockstep::gpu
