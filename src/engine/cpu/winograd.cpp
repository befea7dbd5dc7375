#include "winograd.hpp"

#include "matrix_product.hpp"
#include "threads.hpp"

#include <omp.h>

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::cpu {
namespace {

std::int64_t divided(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The part [first, last) of [0, size) of one of `count` threads.
RowRange part_of(std::int64_t size, int index, int count) {
  return {.first = size * index / count, .last = size * (index + 1) / count};
}

TileGrid grid_of(const PixelLayout& output, std::int64_t padding, int outputs) {
  return {.outputs = outputs,
          .padding = padding,
          .images = output.images,
          .rows = divided(output.height, outputs),
          .columns = divided(output.width, outputs)};
}

/// A layout of only so many vectors per pixel or row.
template <typename Layout>
Layout with_vectors(Layout layout, std::int64_t count) {
  layout.vectors = count;
  return layout;
}

}  // namespace

WinogradPlan::WinogradPlan(const WinogradProblem& problem, int threads)
    : step_(problem.step),
      bias_(problem.bias && step_ != ConvolutionStep::data_gradient),
      out_channels_(dims_of(problem.target)[1]),
      threads_(region_threads(threads)) {
  const int lanes = choose_formats(problem);
  const bool backward = step_ == ConvolutionStep::data_gradient;
  input_ = *PixelLayout::of(backward ? target_ : source_, lanes);
  output_ = *PixelLayout::of(backward ? source_ : target_, lanes);
  filter_ = FilterLayout::of(weight_, lanes, backward ? 1 : 0);
  // The gradient of the source is a convolution of the target's gradient with the rotated filter.
  const std::int64_t padding = backward ? 2 - problem.padding : problem.padding;
  // The choice depends on an image alone, so that the result of an image does not depend on others.
  const TileGrid small = grid_of(output_, padding, 2);
  const TileGrid large = grid_of(output_, padding, 4);
  grid_ = large.products() < small.products() ? large : small;
  choose_blocks();
  place();
}

int WinogradPlan::choose_formats(const WinogradProblem& problem) {
  source_ = problem.source;
  target_ = problem.target;
  const auto fits = [&](int lanes) {
    return PixelLayout::of(source_, lanes) && PixelLayout::of(target_, lanes);
  };
  const int lanes = fits(16) ? 16 : 8;
  if (!fits(lanes)) {
    source_ = {dims_of(problem.source), type_of(problem.source), Tag::nChw8c};
    target_ = {dims_of(problem.target), type_of(problem.target), Tag::nChw8c};
  }
  const Dims weight{dims_of(target_)[1], dims_of(source_)[1], 3, 3};
  weight_ = FilterLayout::desc(weight, lanes, step_ == ConvolutionStep::data_gradient ? 1 : 0);
  return lanes;
}

void WinogradPlan::choose_blocks() {
  // In values; sizes around these measure alike.
  constexpr std::int64_t kibi = 1024;
  constexpr std::int64_t block = 160 * kibi;           // in a core's own cache
  constexpr std::int64_t shared_block = 3072 * kibi;   // in the cache of several cores
  constexpr std::int64_t small_filter = 640 * kibi;    // read once per block
  constexpr std::int64_t small_gradient = 192 * kibi;  // written once per block
  constexpr std::int64_t fewest = 16;
  constexpr std::int64_t most = 256;
  constexpr std::int64_t panel = 64;
  const std::int64_t points = grid_.points();
  const std::int64_t in = input_.channels();
  const std::int64_t out = output_.channels();
  whole_filter_ = points * in * out <= (is_for_weight() ? small_gradient : small_filter);
  panel_channels_ = whole_filter_ ? out : std::min(panel, out);
  std::int64_t limit = std::clamp(block / (points * (in + out)), fewest, most);
  if (!whole_filter_) {
    members_ = threads_;
    if (is_for_weight()) {
      limit = std::max(shared_block / (points * (in + out)), most / 4);
    } else {
      while (members_ > panels() || threads_ % members_ != 0) --members_;
      limit = std::max(shared_block / (points * in), most / 4);
    }
  }
  const std::int64_t tiles = divided(grid_.tiles(), teams());
  blocks_ = divided(tiles, limit);
  rows_ = divided(tiles, blocks_);
}

std::int64_t WinogradPlan::panels() const noexcept {
  return divided(output_.channels(), panel_channels_);
}

TileRange WinogradPlan::tiles_of(int team) const noexcept {
  const RowRange range = part_of(grid_.tiles(), team, teams());
  return {.first = range.first, .last = range.last};
}

WinogradPlan::Area WinogradPlan::take(std::int64_t copies, std::int64_t rows,
                                      std::int64_t channels) {
  constexpr std::int64_t line = 16;  // values
  // An odd number of cache lines, so that the same row of all matrices lies in different sets of a
  // cache.
  const std::int64_t stride = (divided(rows * channels, line) | 1) * line;
  const Area area{.offset = scratch_,
                  .rows = rows,
                  .channels = channels,
                  .stride = stride,
                  .size = grid_.points() * stride};
  scratch_ += static_cast<std::size_t>(copies * area.size);
  return area;
}

void WinogradPlan::place() {
  const std::int64_t in = input_.channels();
  if (is_for_weight()) {
    filter_area_ = take(teams(), in, output_.channels());
    output_area_ = take(teams(), rows_, output_.channels());
  } else {
    filter_area_ = take(whole_filter_ ? 1 : threads_, in, panel_channels_);
    output_area_ = take(threads_, rows_, panel_channels_);
  }
  input_area_ = take(teams(), rows_, in);
  bias_offset_ = scratch_;
  if (bias_) scratch_ += static_cast<std::size_t>(threads_ * output_.channels());
}

float* WinogradPlan::bias_row(float* scratch, int thread) const noexcept {
  return scratch + bias_offset_ + static_cast<std::size_t>(thread * output_.channels());
}

PointMatrices WinogradPlan::Area::matrices(float* scratch, int copy) const noexcept {
  return {.values = scratch + offset + static_cast<std::size_t>(copy * size),
          .rows = rows,
          .channels = channels,
          .stride = stride};
}

Desc WinogradPlan::scratch_desc() const {
  return {Dims{static_cast<Dims::value_type>(scratch_)}, DataType::f32, Tag::x};
}

WinogradStep::WinogradStep(std::string name, const WinogradPlan& plan, Operands operands)
    : name_(std::move(name)), plan_(plan), operands_(std::move(operands)) {
  WinogradStep::bind();
}

void WinogradStep::bind() {
  input_ = operands_.input.get_data_handle();
  weight_ = static_cast<float*>(operands_.weight.get_data_handle());
  bias_ = operands_.bias ? static_cast<float*>(operands_.bias.get_data_handle()) : nullptr;
  output_ = static_cast<std::byte*>(operands_.output.get_data_handle());
  scratch_ = static_cast<float*>(operands_.scratch.get_data_handle());
}

/// What one of the plan's threads does.
class WinogradStep::Member final {
 public:
  Member(const WinogradStep& step, int thread)
      : step_(step),
        plan_(step.plan_),
        thread_(thread),
        team_(thread / plan_.members_),
        member_(thread % plan_.members_),
        source_(plan_.input_area_.matrices(step.scratch_, team_)) {}

  void convolve() const {
    if (plan_.bias_) {
      const std::span<float> row = bias_row(thread_);
      const std::span<const float> bias(step_.bias_, static_cast<std::size_t>(plan_.out_channels_));
      std::fill(std::ranges::copy(bias, row.begin()).out, row.end(), 0.0F);
    }
    if (plan_.whole_filter_) {
      transform_filter(filter(), 0, part_of(plan_.filter_.rows, thread_, plan_.threads_));
      wait();
    }
    for_blocks([&](const TileRange& block, std::int64_t /*index*/) {
      transform_source(block);
      wait_for_team();
      const RowRange own = part_of(plan_.panels(), member_, plan_.members_);
      for (std::int64_t panel = own.first; panel < own.last; ++panel) {
        compute_panel(block, panel * plan_.panel_channels_ / plan_.output_.lanes);
      }
      wait_for_team();
    });
  }

  void differentiate() const {
    if (plan_.bias_) std::ranges::fill(bias_row(thread_), 0.0F);
    for_blocks([&](const TileRange& block, std::int64_t index) {
      transform_source(block);
      transform_gradient(block);
      if (plan_.bias_) {
        add_tiles(plan_.output_, step_.output_, plan_.grid_, own_part(block),
                  bias_row(thread_).data());
      }
      wait_for_team();
      add_products(block.last - block.first, index > 0);
      wait_for_team();
    });
    wait();
    if (plan_.bias_ && thread_ == 0) sum_bias_rows();
    points_to_filter({.layout = plan_.filter_,
                      .outputs = plan_.grid_.outputs,
                      .copies = plan_.teams(),
                      .copy_stride = plan_.filter_area_.size},
                     plan_.filter_area_.matrices(step_.scratch_, 0),
                     part_of(plan_.filter_.rows, thread_, plan_.threads_), step_.weight_);
  }

 private:
  static void wait() {
#pragma omp barrier
  }
  void wait_for_team() const {
    if (plan_.members_ > 1) wait();  // all teams have the same number of blocks
  }

  template <typename Loop>
  void for_blocks(const Loop& loop) const {
    const TileRange all = plan_.tiles_of(team_);
    for (std::int64_t index = 0; index < plan_.blocks_; ++index) {
      const std::int64_t first = std::min(all.first + index * plan_.rows_, all.last);
      loop(TileRange{.first = first, .last = std::min(first + plan_.rows_, all.last)}, index);
    }
  }

  [[nodiscard]] std::span<float> bias_row(int thread) const {
    return {plan_.bias_row(step_.scratch_, thread),
            static_cast<std::size_t>(plan_.output_.channels())};
  }
  void sum_bias_rows() const {
    const std::span<float> sums(step_.bias_, static_cast<std::size_t>(plan_.out_channels_));
    std::ranges::fill(sums, 0.0F);
    for (int thread = 0; thread < plan_.threads_; ++thread) {
      for (std::size_t channel = 0; channel < sums.size(); ++channel) {
        sums[channel] += bias_row(thread)[channel];
      }
    }
  }

  /// This member's part of a block.
  [[nodiscard]] TileRange own_part(const TileRange& block) const {
    const RowRange part = part_of(block.last - block.first, member_, plan_.members_);
    return {.first = block.first + part.first, .last = block.first + part.last, .row = part.first};
  }
  void transform_source(const TileRange& block) const {
    source_to_points(plan_.input_, step_.input_, plan_.grid_, own_part(block), source_);
  }
  void transform_gradient(const TileRange& block) const {
    gradient_to_points(plan_.output_, step_.output_, plan_.grid_, own_part(block), target());
  }

  /// The matrices of the filter that this thread reads or writes.
  [[nodiscard]] PointMatrices filter() const {
    const int copy = plan_.is_for_weight() ? team_ : plan_.whole_filter_ ? 0 : thread_;
    return plan_.filter_area_.matrices(step_.scratch_, copy);
  }
  [[nodiscard]] PointMatrices target() const {
    return plan_.output_area_.matrices(step_.scratch_, plan_.is_for_weight() ? team_ : thread_);
  }

  /// Vectors of a panel that starts at `vector`; the last panel may be narrower.
  [[nodiscard]] std::int64_t vectors_from(std::int64_t vector) const {
    return std::min(plan_.panel_channels_ / plan_.output_.lanes, plan_.output_.vectors - vector);
  }
  void transform_filter(const PointMatrices& to, std::int64_t vector, const RowRange& rows) const {
    const FilterLayout panel = with_vectors(plan_.filter_, vectors_from(vector));
    filter_to_points({.layout = panel,
                      .outputs = plan_.grid_.outputs,
                      .rotated = plan_.step_ == ConvolutionStep::data_gradient},
                     step_.weight_ + vector * plan_.filter_.vector_stride, rows, to);
  }
  /// Computes the channels of a panel for a block.
  void compute_panel(const TileRange& block, std::int64_t vector) const {
    const PointMatrices weight = filter();
    if (!plan_.whole_filter_) {
      transform_filter(weight, vector, {.first = 0, .last = plan_.filter_.rows});
    }
    const PointMatrices result = target();
    const std::int64_t vectors = vectors_from(vector);
    for (std::int64_t point = 0; point < plan_.grid_.points(); ++point) {
      multiply({.left = source_.values + point * source_.stride,
                .left_row_stride = source_.channels,
                .left_column_stride = 1,
                .right = weight.values + point * weight.stride,
                .right_stride = weight.channels,
                .target = result.values + point * result.stride,
                .target_stride = result.channels,
                .rows = block.last - block.first,
                .columns = vectors * plan_.output_.lanes,
                .depth = source_.channels});
    }
    const float* const bias =
        plan_.bias_ ? bias_row(thread_).data() + vector * plan_.output_.lanes : nullptr;
    points_to_result(with_vectors(plan_.output_, vectors), result, plan_.grid_, block, bias,
                     step_.output_ + plan_.output_.vector_offset(vector));
  }

  /// Adds a block's products to this member's part of the filter's gradient.
  void add_products(std::int64_t tiles, bool add) const {
    const PointMatrices gradient = target();
    const PointMatrices weight = filter();
    const RowRange own = part_of(plan_.grid_.points() * plan_.panels(), member_, plan_.members_);
    for (std::int64_t item = own.first; item < own.last; ++item) {
      const std::int64_t point = item / plan_.panels();
      const std::int64_t channel = item % plan_.panels() * plan_.panel_channels_;
      multiply({.left = source_.values + point * source_.stride,
                .left_row_stride = 1,
                .left_column_stride = source_.channels,
                .right = gradient.values + point * gradient.stride + channel,
                .right_stride = gradient.channels,
                .target = weight.values + point * weight.stride + channel,
                .target_stride = weight.channels,
                .rows = source_.channels,
                .columns = std::min(plan_.panel_channels_, weight.channels - channel),
                .depth = tiles,
                .add = add});
    }
  }

  const WinogradStep& step_;
  const WinogradPlan& plan_;
  int thread_;
  int team_;
  int member_;
  PointMatrices source_;
};

void WinogradStep::run() {
  int threads = 0;
#pragma omp parallel num_threads(plan_.threads_)
  {
    if (omp_get_thread_num() == 0) threads = omp_get_num_threads();
    if (omp_get_num_threads() == plan_.threads_) {
      const Member member(*this, omp_get_thread_num());
      plan_.is_for_weight() ? member.differentiate() : member.convolve();
    }
  }
  if (threads != plan_.threads_) {
    fail(ExitStatus::usage,
         "{} needs {} threads (OpenMP started {}); unset OMP_DYNAMIC, or pass --threads {}", name_,
         plan_.threads_, threads, threads);
  }
}

}  // namespace lockstep::cpu
