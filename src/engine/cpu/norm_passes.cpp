#include "norm_passes.hpp"

#include "../vector_loop.hpp"
#include "norm_lanes.hpp"

#include <algorithm>
#include <cassert>
#include <type_traits>

namespace lockstep::cpu {
namespace {

using Unit = ChannelRows::Unit;

/// Up to eight rows of a unit that share mask bytes, from one lane on.
struct Rows {
  std::ptrdiff_t offset;  ///< of the first value
  std::ptrdiff_t mask;    ///< of the byte
  std::ptrdiff_t channel;
  std::int64_t pixel;  ///< of the first row, in the batch
  int lane;
  int count;
  int width;
};

/// Calls loop(rows, lanes) for all rows of a unit, a constant number of lanes per call.
template <typename T, typename Loop>
LOCKSTEP_INLINED inline void for_unit(const Unit& unit, const Loop& loop) {
  constexpr std::int64_t group = ChannelRows::rows_per_byte;
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
                  .pixel = unit.first_row + row,
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

/// Two sums per lane.
struct LaneSums {
  float* first;
  float* second;
};

template <typename Floats>
LOCKSTEP_INLINED inline void scale(Floats& values, float factor) {
  for (auto& value : values) value *= factor;
}

template <typename T>
struct SumValues {
  using Value = T;
  const T* source;
  const float* reference;

  template <typename V>
  LOCKSTEP_INLINED void operator()(const Rows& rows, V, const LaneSums& sums) const {
    using Floats = typename V::Floats;
    const Floats zero = V::load_channels(reference + rows.channel);
    Floats first{};
    Floats second{};
    const T* at = source + rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values = V::load(at);
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
    const Floats zero = V::load_channels(of.mean + rows.channel);
    MaskOf<V> mask;
    if constexpr (masks) mask.load(of.mask + rows.mask);
    Floats first{};
    Floats second{};
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values = V::load(static_cast<const T*>(of.gradient) + at);
      if constexpr (adds) {
        const Floats more = V::load(static_cast<const T*>(of.addend) + at);
        for (int v = 0; v < V::vectors; ++v) values[v] += more[v];
      }
      if constexpr (masks) mask.keep(values, row);
      // Sums use the stored (rounded) values, which the next pass reads.
      if constexpr (stores) V::store(values, static_cast<T*>(of.masked) + at);
      if (of.row_factors != nullptr) scale(values, of.row_factors[rows.pixel + row]);
      const Floats source = V::load(static_cast<const T*>(of.source) + at);
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
    const Floats zero = V::load_channels(of.mean + rows.channel);
    const Floats slope = V::load_channels(of.slope + rows.channel);
    const Floats offset = V::load_channels(of.offset + rows.channel);
    MaskOf<V> mask;
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values = V::load(static_cast<const T*>(of.source) + at);
      for (int v = 0; v < V::vectors; ++v) values[v] = (values[v] - zero[v]) * slope[v] + offset[v];
      if (of.row_factors != nullptr) scale(values, of.row_factors[rows.pixel + row]);
      if constexpr (adds) {
        const Floats addend = V::load(static_cast<const T*>(of.addend) + at);
        for (int v = 0; v < V::vectors; ++v) values[v] += addend[v];
      }
      if constexpr (masks) mask.set_where_positive(values, row);
      if constexpr (relu) {
        const typename V::Float nothing{};
        // This form keeps NaN.
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
    const Floats zero = V::load_channels(of.mean + rows.channel);
    const Floats slope = V::load_channels(of.slope + rows.channel);
    const Floats offset = V::load_channels(of.offset + rows.channel);
    const Floats factor = V::load_channels(of.factor + rows.channel);
    MaskOf<V> mask;
    if constexpr (masks) mask.load(of.mask + rows.mask);
    std::ptrdiff_t at = rows.offset;
    for (int row = 0; row < rows.count; ++row, at += rows.width) {
      Floats values = V::load(static_cast<const T*>(of.gradient) + at);
      if constexpr (masks) mask.keep(values, row);
      if (of.row_factors != nullptr) scale(values, of.row_factors[rows.pixel + row]);
      const Floats source = V::load(static_cast<const T*>(of.source) + at);
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

/// Rows summed in fp32.
constexpr std::int64_t rows_per_sum = 64;

}  // namespace

NormPasses::NormPasses(const Desc& desc, int threads)
    : rows_(desc),
      bf16_(type_of(desc) == DataType::bf16),
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
                       for (std::int64_t left = some.rows; left > 0; left -= rows_per_sum) {
                         some.rows = std::min(left, rows_per_sum);
                         std::fill_n(lanes, 2 * width, 0.0F);
                         for_unit<typename Loop::Value>(
                             some, [&](const Rows& rows, auto some_lanes)
                                       LOCKSTEP_INLINED { loop(rows, some_lanes, sums); });
                         // Padding may be NaN.
                         for (int lane = 0; lane < some.channels; ++lane) {
                           firsts[lane] += double{sums.first[lane]};
                           seconds[lane] += double{sums.second[lane]};
                         }
                         some.offset += rows_per_sum * some.width;
                         some.first_row += rows_per_sum;
                         some.mask += rows_per_sum / ChannelRows::rows_per_byte * some.width;
                       }
                     }
                   });
  // In thread order.
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
  assert(of.addend == nullptr || of.masked != nullptr);
  with_type_and_flags(
      bf16_,
      [&]<typename T, bool adds, bool masks, bool stores>() {
        if constexpr (stores || !adds) {
          sums_over_units(SumGradients<T, adds, masks, stores>{of});
        }
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
