#include "norm_passes.hpp"

#include "../vector_loop.hpp"
#include "lockstep/core/bfloat16.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lockstep::cpu {
namespace {

using Unit = ChannelRows::Unit;

/// The compilers' own vectors, which are as many of the processor's as it takes.
template <int lanes>
struct VectorTypes;
template <>
struct VectorTypes<16> {
  using Float = float __attribute__((vector_size(64)));
  using Bits = std::uint32_t __attribute__((vector_size(64)));
  using Bytes = std::uint8_t __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<8> {
  using Float = float __attribute__((vector_size(32)));
  using Bits = std::uint32_t __attribute__((vector_size(32)));
  using Bytes = std::uint8_t __attribute__((vector_size(8)));
};
template <>
struct VectorTypes<4> {
  using Float = float __attribute__((vector_size(16)));
  using Bits = std::uint32_t __attribute__((vector_size(16)));
  using Bytes = std::uint8_t __attribute__((vector_size(4)));
};
template <>
struct VectorTypes<1> {
  using Float = float __attribute__((vector_size(4)));
  using Bits = std::uint32_t __attribute__((vector_size(4)));
  using Bytes = std::uint8_t __attribute__((vector_size(1)));
};

template <typename Vector, typename T>
LOCKSTEP_INLINED inline void load_bytes(const T* from, Vector& to) {
  std::memcpy(&to, from, sizeof(Vector));
}
template <typename Vector, typename T>
LOCKSTEP_INLINED inline void store_bytes(const Vector& from, T* to) {
  std::memcpy(to, &from, sizeof(Vector));
}

/// Neighbouring lanes of a row, as one or two vectors. A lane is a channel, so what is added up by
/// lane does not depend on how many there are.
template <typename T, int count>
struct Lanes;

template <int count>
struct Lanes<float, count> : VectorTypes<count> {
  static constexpr int lanes = count;
  static constexpr int vectors = 1;
  using typename VectorTypes<count>::Float;
  using typename VectorTypes<count>::Bits;
  using typename VectorTypes<count>::Bytes;
  using Floats = std::array<Float, 1>;

  LOCKSTEP_INLINED static void load(const float* from, Floats& to) { load_bytes(from, to[0]); }
  LOCKSTEP_INLINED static void store(Floats& from, float* to) { store_bytes(from[0], to); }
  LOCKSTEP_INLINED static void load_channels(const float* from, Floats& to) { load(from, to); }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    Floats sum;
    load(to, sum);
    sum[0] += values[0];
    store(sum, to);
  }
};

/// Two neighbours are the halves of a word: the vectors hold the even lanes and the odd ones, so
/// that they come apart, and together again, without a value moving to another lane.
template <int count>
struct Lanes<Bfloat16, count> : VectorTypes<count / 2> {
  static constexpr int pairs = count / 2;
  static constexpr int lanes = count;
  static constexpr int vectors = 2;
  using typename VectorTypes<count / 2>::Float;
  using typename VectorTypes<count / 2>::Bits;
  using typename VectorTypes<count / 2>::Bytes;
  using Floats = std::array<Float, 2>;
  static constexpr std::uint32_t upper = 0xFFFF0000U;

  LOCKSTEP_INLINED static void load(const Bfloat16* from, Floats& to) {
    Bits words;
    load_bytes(from, words);
    to = {std::bit_cast<Float>(words << 16), std::bit_cast<Float>(words & upper)};
  }
  /// Leaves what was stored.
  LOCKSTEP_INLINED static void store(Floats& from, Bfloat16* to) {
    for (Float& values : from) values = rounded(values);
    const Bits words = (std::bit_cast<Bits>(from[0]) >> 16) | std::bit_cast<Bits>(from[1]);
    store_bytes(words, &to->bits);
  }
  LOCKSTEP_INLINED static void load_channels(const float* from, Floats& to) {
    Float first;
    Float second;
    load_bytes(from, first);
    load_bytes(from + pairs, second);
    to = {evens(first, second), odds(first, second)};
  }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    Floats sum;
    load_channels(to, sum);
    for (int v = 0; v < 2; ++v) sum[v] += values[v];
    store_bytes(merged<0>(sum[0], sum[1]), to);
    store_bytes(merged<1>(sum[0], sum[1]), to + pairs);
  }

 private:
  /// As Bfloat16 rounds, in place.
  LOCKSTEP_INLINED static Float rounded(const Float& value) {
    const Bits wide = std::bit_cast<Bits>(value);
    const Bits nearest = wide + 0x7FFFU + ((wide >> 16) & 1U);
    const Bits quiet = wide | 0x400000U;
    return std::bit_cast<Float>((value != value ? quiet : nearest) & upper);
  }
  using Places = std::make_integer_sequence<int, pairs>;
  LOCKSTEP_INLINED static Float evens(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (2 * i)...);
    }
    (Places());
  }
  LOCKSTEP_INLINED static Float odds(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (2 * i + 1)...);
    }
    (Places());
  }
  /// The first half of the lanes, or the second, from the even ones and the odd ones.
  template <int half>
  LOCKSTEP_INLINED static Float merged(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (half * pairs / 2 + i / 2 + i % 2 * pairs)...);
    }
    (Places());
  }
};

/// By itself, where a row has no neighbour for it.
template <>
struct Lanes<Bfloat16, 1> : VectorTypes<1> {
  static constexpr int lanes = 1;
  static constexpr int vectors = 1;
  using Floats = std::array<Float, 1>;

  LOCKSTEP_INLINED static void load(const Bfloat16* from, Floats& to) {
    to[0] = Float{} + static_cast<float>(*from);
  }
  LOCKSTEP_INLINED static void store(Floats& from, Bfloat16* to) {
    *to = Bfloat16(from[0][0]);
    load(to, from);
  }
  LOCKSTEP_INLINED static void load_channels(const float* from, Floats& to) {
    load_bytes(from, to[0]);
  }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    *to += values[0][0];
  }
};

/// The bits of a mask, of some lanes of up to eight rows: a byte a lane, by vector.
template <typename V>
struct MaskOf {
  using Bits = typename V::Bits;
  std::array<Bits, V::vectors> bits{};

  LOCKSTEP_INLINED void load(const std::uint8_t* from) {
    for (Bits& some : bits) {
      typename V::Bytes bytes;
      load_bytes(from, bytes);
      some = __builtin_convertvector(bytes, Bits);
      from += sizeof(bytes);
    }
  }
  LOCKSTEP_INLINED void store(std::uint8_t* to) const {
    for (const Bits& some : bits) {
      const auto bytes = __builtin_convertvector(some, typename V::Bytes);
      store_bytes(bytes, to);
      to += sizeof(bytes);
    }
  }
  LOCKSTEP_INLINED void set_where_positive(const typename V::Floats& values, int row) {
    for (int v = 0; v < V::vectors; ++v) {
      const typename V::Float nothing{};
      bits[v] |= std::bit_cast<Bits>(values[v] > nothing) & (1U << row);
    }
  }
  /// Zero in the lanes without the row's bit.
  LOCKSTEP_INLINED void keep(typename V::Floats& values, int row) const {
    for (int v = 0; v < V::vectors; ++v) {
      const typename V::Float nothing{};
      values[v] = (bits[v] & (1U << row)) != 0U ? values[v] : nothing;
    }
  }
};

/// Some rows of a unit, at most eight, that share their lanes' bytes of a mask, from one lane on.
struct Rows {
  std::ptrdiff_t offset;  ///< of the first value
  std::ptrdiff_t mask;    ///< of the byte
  std::ptrdiff_t channel;
  int lane;
  int count;
  int width;
};

/// Calls loop(rows, lanes) for all lanes of all rows of a unit, so many at a time, a constant.
template <typename T, typename Loop>
LOCKSTEP_INLINED inline void for_unit(const Unit& unit, const Loop& loop) {
  constexpr std::int64_t group = ChannelRows::rows_of_a_byte;
  constexpr int most = std::is_same_v<T, float> ? 16 : 32;
  std::ptrdiff_t mask = unit.mask;
  for (std::int64_t row = 0; row < unit.rows; row += group, mask += unit.width) {
    const int count = static_cast<int>(std::min(group, unit.rows - row));
    const std::ptrdiff_t offset = unit.offset + row * unit.width;
    int lane = 0;
    const auto run = [&](auto lanes) LOCKSTEP_INLINED {
      for (; lane + lanes.lanes <= unit.width; lane += lanes.lanes) {
        loop(Rows{.offset = offset + lane,
                  .mask = mask + lane,
                  .channel = unit.first_channel + lane,
                  .lane = lane,
                  .count = count,
                  .width = unit.width},
             lanes);
      }
    };
    run(Lanes<T, most>());
    run(Lanes<T, most / 2>());
    run(Lanes<T, most / 4>());
    run(Lanes<T, 1>());
  }
}

/// Two sums of each lane.
struct LaneSums {
  float* first;
  float* second;
};

template <typename T>
struct SumValues {
  using Value = T;
  const T* source;
  const float* reference;

  template <typename V>
  LOCKSTEP_INLINED void operator()(const Rows& rows, V, const LaneSums& sums) const {
    using Floats = typename V::Floats;
    Floats zero;
    V::load_channels(reference + rows.channel, zero);
    Floats first{};
    Floats second{};
    const T* at = source + rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values;
      V::load(at, values);
      for (int v = 0; v < V::vectors; ++v) {
        const typename V::Float value = values[v] - zero[v];
        first[v] += value;
        second[v] += value * value;
      }
    }
    V::add_channels(first, sums.first + rows.lane);
    V::add_channels(second, sums.second + rows.lane);
  }
};

template <typename T, bool adds, bool masks, bool stores>
struct SumGradients {
  using Value = T;
  const NormPasses::GradientSums& of;

  template <typename V>
  LOCKSTEP_INLINED void operator()(const Rows& rows, V, const LaneSums& sums) const {
    using Floats = typename V::Floats;
    Floats zero;
    V::load_channels(of.mean + rows.channel, zero);
    MaskOf<V> mask;
    if constexpr (masks) mask.load(of.mask + rows.mask);
    Floats first{};
    Floats second{};
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values;
      V::load(static_cast<const T*>(of.gradient) + at, values);
      if constexpr (adds) {
        Floats more;
        V::load(static_cast<const T*>(of.addend) + at, more);
        for (int v = 0; v < V::vectors; ++v) values[v] += more[v];
      }
      if constexpr (masks) mask.keep(values, row);
      // What is stored is what the next pass reads.
      if constexpr (stores) V::store(values, static_cast<T*>(of.masked) + at);
      Floats source;
      V::load(static_cast<const T*>(of.source) + at, source);
      for (int v = 0; v < V::vectors; ++v) {
        first[v] += values[v];
        second[v] += values[v] * (source[v] - zero[v]);
      }
    }
    V::add_channels(first, sums.first + rows.lane);
    V::add_channels(second, sums.second + rows.lane);
  }
};

template <typename T, bool adds, bool relu, bool masks>
struct Normalize {
  using Value = T;
  const NormPasses::Normalization& of;

  template <typename V>
  LOCKSTEP_INLINED void operator()(const Rows& rows, V) const {
    using Floats = typename V::Floats;
    Floats zero;
    Floats slope;
    Floats offset;
    V::load_channels(of.mean + rows.channel, zero);
    V::load_channels(of.slope + rows.channel, slope);
    V::load_channels(of.offset + rows.channel, offset);
    MaskOf<V> mask;
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values;
      V::load(static_cast<const T*>(of.source) + at, values);
      for (int v = 0; v < V::vectors; ++v) values[v] = (values[v] - zero[v]) * slope[v] + offset[v];
      if constexpr (adds) {
        Floats addend;
        V::load(static_cast<const T*>(of.addend) + at, addend);
        for (int v = 0; v < V::vectors; ++v) values[v] += addend[v];
      }
      if constexpr (masks) mask.set_where_positive(values, row);
      if constexpr (relu) {
        const typename V::Float nothing{};
        // So written, NaN stays NaN.
        for (auto& value : values) value = value < nothing ? nothing : value;
      }
      V::store(values, static_cast<T*>(of.target) + at);
    }
    if constexpr (masks) mask.store(of.mask + rows.mask);
  }
};

template <typename T, bool masks>
struct Propagate {
  using Value = T;
  const NormPasses::Propagation& of;

  template <typename V>
  LOCKSTEP_INLINED void operator()(const Rows& rows, V) const {
    using Floats = typename V::Floats;
    Floats zero;
    Floats slope;
    Floats offset;
    Floats factor;
    V::load_channels(of.mean + rows.channel, zero);
    V::load_channels(of.slope + rows.channel, slope);
    V::load_channels(of.offset + rows.channel, offset);
    V::load_channels(of.factor + rows.channel, factor);
    MaskOf<V> mask;
    if constexpr (masks) mask.load(of.mask + rows.mask);
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values;
      V::load(static_cast<const T*>(of.gradient) + at, values);
      if constexpr (masks) mask.keep(values, row);
      Floats source;
      V::load(static_cast<const T*>(of.source) + at, source);
      for (int v = 0; v < V::vectors; ++v) {
        values[v] = factor[v] * values[v] + slope[v] * (source[v] - zero[v]) + offset[v];
      }
      V::store(values, static_cast<T*>(of.target) + at);
    }
  }
};

/// Calls call(T, flags...) with each flag as a constant.
template <typename T, bool... known, typename Call>
void with_flags(const Call& call) {
  call.template operator()<T, known...>();
}
template <typename T, bool... known, typename Call, typename... Flags>
void with_flags(const Call& call, bool flag, Flags... flags) {
  flag ? with_flags<T, known..., true>(call, flags...)
       : with_flags<T, known..., false>(call, flags...);
}
template <typename Call, typename... Flags>
void with_type_and_flags(bool bf16, const Call& call, Flags... flags) {
  bf16 ? with_flags<Bfloat16>(call, flags...) : with_flags<float>(call, flags...);
}

/// Added up in fp32.
constexpr std::int64_t rows_of_a_sum = 64;

}  // namespace

NormPasses::NormPasses(const Desc& desc, int threads)
    : rows_(desc),
      bf16_(desc.data_type() == DataType::bf16),
      channels_(static_cast<std::size_t>(rows_.channels())),
      lane_sums_(static_cast<std::size_t>(threads) * 2 * static_cast<std::size_t>(rows_.width())),
      parts_(static_cast<std::size_t>(threads) * 2 * channels_),
      sums_(2 * channels_) {}

template <typename Loop>
void NormPasses::over_units(const Loop& loop) const {
  vector_parts(rows_.units(), rows_.values(),
               [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
                 for (std::ptrdiff_t i = begin; i < end; ++i)
                   for_unit<typename Loop::Value>(rows_.unit(i), loop);
               });
}

template <typename Loop>
void NormPasses::sums_over_units(const Loop& loop) {
  const auto width = static_cast<std::size_t>(rows_.width());
  const int threads =
      vector_parts(rows_.units(), rows_.values(),
                   [&](std::ptrdiff_t begin, std::ptrdiff_t end, int thread) LOCKSTEP_INLINED {
                     const auto at = static_cast<std::size_t>(thread);
                     float* const lanes = lane_sums_.data() + at * 2 * width;
                     const LaneSums sums{.first = lanes, .second = lanes + width};
                     double* const part = parts_.data() + at * 2 * channels_;
                     std::fill_n(part, 2 * channels_, 0.0);
                     for (std::ptrdiff_t i = begin; i < end; ++i) {
                       Unit some = rows_.unit(i);
                       double* const firsts = part + some.first_channel;
                       double* const seconds = firsts + channels_;
                       for (std::int64_t left = some.rows; left > 0; left -= rows_of_a_sum) {
                         some.rows = std::min(left, rows_of_a_sum);
                         std::fill_n(lanes, 2 * width, 0.0F);
                         for_unit<typename Loop::Value>(
                             some, [&](const Rows& rows, auto some_lanes)
                                       LOCKSTEP_INLINED { loop(rows, some_lanes, sums); });
                         // Padding may be NaN.
                         for (int lane = 0; lane < some.channels; ++lane) {
                           firsts[lane] += double{sums.first[lane]};
                           seconds[lane] += double{sums.second[lane]};
                         }
                         some.offset += rows_of_a_sum * some.width;
                         some.mask += rows_of_a_sum / ChannelRows::rows_of_a_byte * some.width;
                       }
                     }
                   });
  // In the threads' order.
  std::fill_n(sums_.data(), sums_.size(), 0.0);
  const double* part = parts_.data();
  for (int thread = 0; thread < threads; ++thread, part += sums_.size()) {
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += part[i];
  }
}

void NormPasses::first_values(const void* source, float* to) const {
  for (std::int64_t channel = 0; channel < rows_.channels(); ++channel) {
    const std::ptrdiff_t at = rows_.first_of(channel);
    to[channel] = bf16_ ? float{static_cast<const Bfloat16*>(source)[at]}
                        : static_cast<const float*>(source)[at];
  }
}

std::span<double> NormPasses::sum_values(const void* source, const float* reference) {
  with_type_and_flags(bf16_, [&]<typename T>() {
    sums_over_units(SumValues<T>{.source = static_cast<const T*>(source), .reference = reference});
  });
  return sums_.span();
}

void NormPasses::normalize(const Normalization& of) const {
  with_type_and_flags(
      bf16_,
      [&]<typename T, bool adds, bool relu, bool masks>() {
        if constexpr (relu || !masks) over_units(Normalize<T, adds, relu, masks>{of});
      },
      of.addend != nullptr, of.relu, of.relu && of.mask != nullptr);
}

std::span<double> NormPasses::sum_gradients(const GradientSums& of) {
  with_type_and_flags(
      bf16_,
      [&]<typename T, bool adds, bool masks, bool stores>() {
        if constexpr (stores || !adds) sums_over_units(SumGradients<T, adds, masks, stores>{of});
      },
      of.addend != nullptr, of.mask != nullptr, of.masked != nullptr);
  return sums_.span();
}

void NormPasses::propagate(const Propagation& of) const {
  with_type_and_flags(
      bf16_, [&]<typename T, bool masks>() { over_units(Propagate<T, masks>{of}); },
      of.mask != nullptr);
}

}  // namespace lockstep::cpu
