#include "convolution_products.hpp"

#include "program_builder.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep::cpu {
namespace {

/// Row width up to which AMX leaves most positions empty.
constexpr std::int64_t short_row = 8;
/// Minimum number of channel pairs for which a product is faster, without and with patches.
constexpr std::int64_t min_pairs = 4096;               // 64 * 64
constexpr std::int64_t min_pairs_for_patches = 16384;  // 128 * 128

Desc channels_last(const Dims& dims, DataType type) {
  return {dims, type, Tag::nhwc};
}

bool is_channels_last(const Desc& desc) {
  return desc == channels_last(dims_of(desc), DataType::bf16);
}

template <typename PrimitiveDesc>
bool is_slow(const PrimitiveDesc& pd) {
  return std::string_view(pd.impl_info_str()).find("amx") != std::string_view::npos;
}

std::int64_t pairs_of(const Desc& weight) {
  return dims_of(weight)[0] * dims_of(weight)[1];
}

bool is_large_point(const Desc& weight) {
  return dims_of(weight)[2] == 1 && dims_of(weight)[3] == 1 && pairs_of(weight) >= min_pairs;
}

/// `rows`: the tensor whose rows the primitive processes.
bool is_large_and_short(const Desc& weight, const Desc& rows) {
  return pairs_of(weight) >= min_pairs_for_patches && dims_of(rows)[3] <= short_row;
}

Dims::value_type places_of(const Dims& dims) {
  return dims[0] * dims[2] * dims[3];
}

dnnl::matmul::primitive_desc product_of(const Desc& left, const Desc& right, const Desc& target,
                                        const dnnl::engine& engine) {
  return primitive_desc<dnnl::matmul>(engine, ProgramBuilder::attributes(), left, right, target);
}

}  // namespace

WeightProduct WeightProduct::make(const Dims& source, const Dims& gradient, const Window& window,
                                  const dnnl::engine& engine) {
  const Dims::value_type seen = window.height * window.width * source[1];
  WeightProduct made{
      .window = window,
      .source = channels_last(source, DataType::bf16),
      .gradient = channels_last(gradient, DataType::bf16),
      .weight =
          channels_last(Dims{gradient[1], source[1], window.height, window.width}, DataType::f32),
      .gradient_rows = Desc(Dims{gradient[1], places_of(gradient)}, DataType::bf16, Tag::ba),
      .patches = Desc(Dims{places_of(gradient), seen}, DataType::bf16, Tag::ab),
      .weight_rows = Desc(Dims{gradient[1], seen}, DataType::f32, Tag::ab),
      .product = {}};
  made.product = product_of(made.gradient_rows, made.patches, made.weight_rows, engine);
  return made;
}

std::optional<WeightProduct> WeightProduct::make(
    const dnnl::convolution_backward_weights::primitive_desc& direct, const Window& window,
    const dnnl::engine& engine) {
  const Desc source = direct.src_desc();
  const Desc gradient = direct.diff_dst_desc();
  const Desc weight = direct.diff_weights_desc();
  const bool suits = is_large_point(weight) || is_large_and_short(weight, gradient);
  if (!suits || !is_slow(direct) || direct.diff_bias_desc().get_size() != 0) return std::nullopt;
  if (!is_channels_last(source) || !is_channels_last(gradient)) return std::nullopt;
  return make(dims_of(source), dims_of(gradient), window, engine);
}

DataProduct DataProduct::make(const Dims& source, const Dims& gradient, const Window& window,
                              const dnnl::engine& engine) {
  const Dims::value_type rows = places_of(window.stride == 1 ? source : gradient);
  const Dims::value_type seen = window.height * window.width * gradient[1];
  DataProduct made{.window = window,
                   .gradient = channels_last(gradient, DataType::bf16),
                   .weight = channels_last(
                       Dims{gradient[1], source[1], window.height, window.width}, DataType::bf16),
                   .source = channels_last(source, DataType::bf16),
                   .patches = Desc(Dims{rows, seen}, DataType::bf16, Tag::ab),
                   .weight_rows = Desc(Dims{seen, source[1]}, DataType::bf16, Tag::ab),
                   .source_rows = Desc(Dims{rows, source[1]}, DataType::bf16, Tag::ab),
                   .product = {}};
  made.product = product_of(made.patches, made.weight_rows, made.source_rows, engine);
  return made;
}

std::optional<DataProduct> DataProduct::make(
    const dnnl::convolution_backward_data::primitive_desc& direct, const Window& window,
    const dnnl::engine& engine) {
  const Desc source = direct.diff_src_desc();
  const Desc gradient = direct.diff_dst_desc();
  const Desc weight = direct.weights_desc();
  const bool is_pointwise = is_large_point(weight) && window.padding == 0;
  const bool is_short = window.stride == 1 && window.height == window.width &&
                        window.padding < window.height && is_large_and_short(weight, source);
  if (!(is_pointwise || is_short) || !is_slow(direct)) return std::nullopt;
  if (!is_channels_last(source) || !is_channels_last(gradient)) return std::nullopt;
  return make(dims_of(source), dims_of(gradient), window, engine);
}

PlacingStep::PlacingStep(dnnl::memory source, dnnl::memory target)
    : source_memory_(std::move(source)), target_memory_(std::move(target)) {
  PlacingStep::bind();
}

void PlacingStep::bind() {
  source_ = static_cast<const std::uint16_t*>(source_memory_.get_data_handle());
  target_ = static_cast<std::uint16_t*>(target_memory_.get_data_handle());
}

PatchesStep::PatchesStep(const dnnl::memory& source, const dnnl::memory& target, const Dims& places,
                         const Window& window)
    : PlacingStep(source, target),
      window_(window),
      channels_(dims_of(source.get_desc())[1]),
      height_(dims_of(source.get_desc())[2]),
      width_(dims_of(source.get_desc())[3]),
      rows_per_sample_(places[2]),
      row_width_(places[3]),
      rows_(places[0] * places[2]) {}

/// Copies the patches of one row of the convolution's target. The part of a patch in one row of the
/// source is contiguous in both.
void PatchesStep::copy_row(std::ptrdiff_t row) const {
  const std::ptrdiff_t sample = row / rows_per_sample_;
  const std::ptrdiff_t top = row % rows_per_sample_ * window_.stride - window_.padding;
  std::uint16_t* to = target() + row * row_width_ * window_.height * window_.width * channels_;
  for (std::ptrdiff_t place = 0; place < row_width_; ++place) {
    const std::ptrdiff_t left = place * window_.stride - window_.padding;
    const std::ptrdiff_t first = std::clamp(-left, std::ptrdiff_t{0}, window_.width);
    const std::ptrdiff_t last = std::clamp(width_ - left, first, window_.width);
    for (std::ptrdiff_t y = top; y < top + window_.height; ++y) {
      const bool inside = y >= 0 && y < height_;
      const std::ptrdiff_t begin = inside ? first : window_.width;
      const std::ptrdiff_t end = inside ? last : window_.width;
      to = std::fill_n(to, begin * channels_, std::uint16_t{0});
      if (begin < end) {
        const std::uint16_t* from =
            source() + ((sample * height_ + y) * width_ + left + begin) * channels_;
        to = std::copy_n(from, (end - begin) * channels_, to);
      }
      to = std::fill_n(to, (window_.width - end) * channels_, std::uint16_t{0});
    }
  }
}

void PatchesStep::run() {
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t row = 0; row < rows_; ++row) copy_row(row);
}

RotateStep::RotateStep(const dnnl::memory& weight, const dnnl::memory& target)
    : PlacingStep(weight, target),
      filters_(dims_of(weight.get_desc())[0]),
      channels_(dims_of(weight.get_desc())[1]),
      points_(dims_of(weight.get_desc())[2] * dims_of(weight.get_desc())[3]) {}

void RotateStep::run() {
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t filter = 0; filter < filters_; ++filter) {
    for (std::ptrdiff_t point = 0; point < points_; ++point) {
      const std::ptrdiff_t rotated = points_ - 1 - point;
      std::copy_n(source() + (filter * points_ + point) * channels_, channels_,
                  target() + (rotated * filters_ + filter) * channels_);
    }
  }
}

ScatterStep::ScatterStep(const dnnl::memory& source, const dnnl::memory& target, const Dims& places,
                         const Window& window)
    : PlacingStep(source, target),
      stride_(window.stride),
      channels_(dims_of(target.get_desc())[1]),
      height_(dims_of(target.get_desc())[2]),
      width_(dims_of(target.get_desc())[3]),
      seen_rows_(places[2]),
      seen_width_(places[3]),
      rows_(places[0] * height_) {}

void ScatterStep::write_row(std::ptrdiff_t row) const {
  const std::ptrdiff_t sample = row / height_;
  const std::ptrdiff_t y = row % height_;
  std::uint16_t* const to = target() + row * width_ * channels_;
  std::fill_n(to, width_ * channels_, std::uint16_t{0});
  if (y % stride_ != 0 || y / stride_ >= seen_rows_) return;
  const std::uint16_t* from =
      source() + (sample * seen_rows_ + y / stride_) * seen_width_ * channels_;
  for (std::ptrdiff_t place = 0; place < seen_width_; ++place) {
    std::copy_n(from + place * channels_, channels_, to + place * stride_ * channels_);
  }
}

void ScatterStep::run() {
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t row = 0; row < rows_; ++row) write_row(row);
}

}  // namespace lockstep::cpu
