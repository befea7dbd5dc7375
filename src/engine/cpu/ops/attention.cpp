#include "../../vector_loop.hpp"
#include "../lowering.hpp"
#include "../matrix_product.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::cpu {
namespace {

constexpr std::ptrdiff_t columns_multiple = 8;  // of MatrixProduct
std::ptrdiff_t padded(std::ptrdiff_t size) {
  return (size + columns_multiple - 1) / columns_multiple * columns_multiple;
}

/// A thread computes one head of one sample at a time, with the scores of a block of queries in its
/// cache, in fp32. Backward computes the scores again.
struct AttentionExtent {
  std::ptrdiff_t samples;
  std::ptrdiff_t tokens;
  std::ptrdiff_t heads;
  std::ptrdiff_t width;                        ///< channels of a head
  static constexpr std::ptrdiff_t block = 64;  ///< queries
  [[nodiscard]] std::ptrdiff_t channels() const { return heads * width; }
  [[nodiscard]] std::ptrdiff_t row() const { return 3 * channels(); }  ///< of q, k and v
  [[nodiscard]] std::ptrdiff_t token_columns() const { return padded(tokens); }
  [[nodiscard]] std::ptrdiff_t columns() const { return padded(width); }
};

enum class Pass { forward, backward };
/// Where a thread's matrices are in its scratch memory, in values.
struct HeadLayout {
  HeadLayout(const AttentionExtent& extent, Pass pass) {
    const std::ptrdiff_t all = extent.tokens * extent.columns();
    const std::ptrdiff_t transposed = extent.width * extent.token_columns();
    const std::ptrdiff_t block = AttentionExtent::block * extent.columns();
    const std::ptrdiff_t block_scores = AttentionExtent::block * extent.token_columns();
    const auto take = [this](std::ptrdiff_t values) { return std::exchange(size, size + values); };
    rows = take(all);
    keys_transposed = take(transposed);
    queries = take(block);
    result = take(block);
    scores = take(block_scores);
    if (pass == Pass::forward) return;
    key_sums = take(all);
    value_sums = take(all);
    values_transposed = take(transposed);
    gradients = take(block);
    score_gradients = take(block_scores);
  }
  std::ptrdiff_t size = 0;
  std::ptrdiff_t rows;  ///< values; in backward, at last, keys
  std::ptrdiff_t keys_transposed;
  std::ptrdiff_t queries;
  std::ptrdiff_t result;
  std::ptrdiff_t scores;
  // Of backward.
  std::ptrdiff_t key_sums = 0;
  std::ptrdiff_t value_sums = 0;
  std::ptrdiff_t values_transposed = 0;
  std::ptrdiff_t gradients = 0;
  std::ptrdiff_t score_gradients = 0;
};

/// Where a head of a sample begins.
struct HeadPlace {
  HeadPlace(const AttentionExtent& extent, std::ptrdiff_t head)
      : input(head / extent.heads * extent.tokens * extent.row() +
              head % extent.heads * extent.width),
        output(head / extent.heads * extent.tokens * extent.channels() +
               head % extent.heads * extent.width),
        rows(head * extent.tokens) {}
  std::ptrdiff_t input;   ///< its first query in (samples, tokens, 3, heads, width)
  std::ptrdiff_t output;  ///< the same in (samples, tokens, heads, width)
  std::ptrdiff_t rows;    ///< of scores, in (samples, heads, tokens)
};

/// Calls run(head, memory) for each head of each sample, with `size` values of a thread's memory.
template <typename Run>
void for_heads(const AttentionExtent& extent, std::ptrdiff_t size, float* scratch, const Run& run) {
  vector_parts(extent.samples * extent.heads, extent.samples * extent.tokens * extent.row(),
               [&](std::ptrdiff_t begin, std::ptrdiff_t end, int thread) LOCKSTEP_INLINED {
                 for (std::ptrdiff_t head = begin; head < end; ++head) {
                   run(head, scratch + thread * size);
                 }
               });
}

/// exp(x) of x <= 0; exp(-87), which is 1.6e-38, below -87. NaN stays NaN.
/// Source: the polynomial of the Cephes library's expf.
LOCKSTEP_INLINED inline float exp_of_negative(float x) {
  constexpr float lowest = -87.0F;
  constexpr float rounding = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float clipped = x < lowest ? lowest : x;
  const float shifted = clipped * 1.44269504F + rounding;
  const float power = shifted - rounding;
  const float r = (clipped - power * 0.693359375F) - power * -2.12194440e-4F;
  float sum = 1.9875691500e-4F;
  sum = sum * r + 1.3981999507e-3F;
  sum = sum * r + 8.3334519073e-3F;
  sum = sum * r + 4.1665795894e-2F;
  sum = sum * r + 1.6666665459e-1F;
  sum = sum * r + 5.0000001201e-1F;
  sum = sum * r * r + r + 1.0F;
  constexpr std::uint32_t exponent_of_one = 127U << 23;
  const std::uint32_t scale = (std::bit_cast<std::uint32_t>(shifted) << 23) + exponent_of_one;
  return sum * std::bit_cast<float>(scale);
}

/// Rows of a head of some tokens, times `factor`, as fp32 (rows, columns), zero in the padding.
template <typename T>
LOCKSTEP_INLINED inline void pack(const AttentionExtent& extent, const T* from,
                                  std::ptrdiff_t stride, std::ptrdiff_t rows, float factor,
                                  float* to) {
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const T* const values = from + row * stride;
    float* const target = to + row * extent.columns();
#pragma omp simd
    for (std::ptrdiff_t c = 0; c < extent.width; ++c) target[c] = float{values[c]} * factor;
    for (std::ptrdiff_t c = extent.width; c < extent.columns(); ++c) target[c] = 0;
  }
}
/// The transpose of all tokens' rows, (width, token_columns).
LOCKSTEP_INLINED inline void transpose(const AttentionExtent& extent, const float* packed,
                                       float* to) {
  constexpr std::ptrdiff_t tile = 16;
  const std::ptrdiff_t columns = extent.token_columns();
  for (std::ptrdiff_t first = 0; first < columns; first += tile) {
    const std::ptrdiff_t end = std::min(first + tile, columns);
    for (std::ptrdiff_t c = 0; c < extent.width; ++c) {
      for (std::ptrdiff_t token = first; token < end; ++token) {
        to[c * columns + token] =
            token < extent.tokens ? packed[token * extent.columns() + c] : 0.0F;
      }
    }
  }
}
template <typename T>
LOCKSTEP_INLINED inline void unpack(const AttentionExtent& extent, const float* packed,
                                    std::ptrdiff_t rows, float factor, T* to,
                                    std::ptrdiff_t stride) {
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const float* const values = packed + row * extent.columns();
    T* const target = to + row * stride;
#pragma omp simd
    for (std::ptrdiff_t c = 0; c < extent.width; ++c) target[c] = T(values[c] * factor);
  }
}

/// target (rows, token_columns) = left (rows, columns) * right (width, token_columns)
void multiply_by_tokens(const AttentionExtent& extent, const float* left, const float* right,
                        std::ptrdiff_t rows, float* target) {
  multiply({.left = left,
            .left_row_stride = extent.columns(),
            .left_column_stride = 1,
            .right = right,
            .right_stride = extent.token_columns(),
            .target = target,
            .target_stride = extent.token_columns(),
            .rows = rows,
            .columns = extent.token_columns(),
            .depth = extent.width});
}
/// target (rows, columns) = scores (rows, tokens) * right (tokens, columns)
void sum_tokens(const AttentionExtent& extent, const float* scores, const float* right,
                std::ptrdiff_t rows, float* target) {
  multiply({.left = scores,
            .left_row_stride = extent.token_columns(),
            .left_column_stride = 1,
            .right = right,
            .right_stride = extent.columns(),
            .target = target,
            .target_stride = extent.columns(),
            .rows = rows,
            .columns = extent.columns(),
            .depth = extent.tokens});
}
/// target (tokens, columns) += scores (rows, tokens), transposed, * right (rows, columns)
void add_queries(const AttentionExtent& extent, const float* scores, const float* right,
                 std::ptrdiff_t rows, float* target) {
  multiply({.left = scores,
            .left_row_stride = 1,
            .left_column_stride = extent.token_columns(),
            .right = right,
            .right_stride = extent.columns(),
            .target = target,
            .target_stride = extent.columns(),
            .rows = extent.tokens,
            .columns = extent.columns(),
            .depth = rows,
            .add = true});
}

/// The largest of a row of scores; if all are NaN, -infinity.
LOCKSTEP_INLINED inline float largest_of(const AttentionExtent& extent, const float* scores) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::ptrdiff_t j = 0; j < extent.tokens; ++j) {
    largest = scores[j] > largest ? scores[j] : largest;
  }
  return largest;
}
/// scores := exp(scores - shift). Returns the sum.
LOCKSTEP_INLINED inline float exponentials(const AttentionExtent& extent, float shift,
                                           float* scores) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::ptrdiff_t j = 0; j < extent.tokens; ++j) {
    scores[j] = exp_of_negative(scores[j] - shift);
    sum += scores[j];
  }
  return sum;
}

template <typename T>
struct AttentionForward {
  AttentionExtent extent;
  float factor;
  const T* source;    ///< (samples, tokens, 3, heads, width)
  float* normalizer;  ///< (samples, heads, tokens): log of the sum of exp(score); null: not kept
  T* target;          ///< (samples, tokens, heads, width)
  float* scratch;
  HeadLayout at{extent, Pass::forward};

  LOCKSTEP_INLINED void run_head(std::ptrdiff_t head, float* memory) const {
    const std::ptrdiff_t channels = extent.channels();
    const HeadPlace place(extent, head);
    const T* const queries = source + place.input;
    T* const results = target + place.output;
    pack(extent, queries + channels, extent.row(), extent.tokens, 1, memory + at.rows);
    transpose(extent, memory + at.rows, memory + at.keys_transposed);
    pack(extent, queries + 2 * channels, extent.row(), extent.tokens, 1, memory + at.rows);
    for (std::ptrdiff_t first = 0; first < extent.tokens; first += extent.block) {
      const std::ptrdiff_t rows = std::min(extent.block, extent.tokens - first);
      pack(extent, queries + first * extent.row(), extent.row(), rows, factor, memory + at.queries);
      multiply_by_tokens(extent, memory + at.queries, memory + at.keys_transposed, rows,
                         memory + at.scores);
      float sums[AttentionExtent::block];
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        float* const scores = memory + at.scores + row * extent.token_columns();
        const float largest = largest_of(extent, scores);
        sums[row] = exponentials(extent, largest, scores);
        if (normalizer == nullptr) continue;
        normalizer[place.rows + first + row] = largest + std::log(sums[row]);
      }
      sum_tokens(extent, memory + at.scores, memory + at.rows, rows, memory + at.result);
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        unpack(extent, memory + at.result + row * extent.columns(), 1, 1 / sums[row],
               results + (first + row) * channels, channels);
      }
    }
  }
  void run() const {
    for_heads(extent, at.size, scratch,
              [this](std::ptrdiff_t head, float* memory)
                  LOCKSTEP_INLINED { run_head(head, memory); });
  }
};

/// With P the probabilities of a head and dP = dO * V^T: dS = P * (dP - rows' sums of P * dP),
/// dQ = dS * K, dK = dS^T * Q and dV = P^T * dO.
template <typename T>
struct AttentionBackward {
  AttentionExtent extent;
  float factor;
  const T* source;
  const float* normalizer;
  const T* gradient;  ///< as AttentionForward::target
  T* target;          ///< as `source`, and may be it
  float* scratch;
  HeadLayout at{extent, Pass::backward};

  /// Of a row: scores := probabilities, gradients of these := gradients of the scores.
  LOCKSTEP_INLINED void differentiate(float of_row, float* scores, float* gradients) const {
    exponentials(extent, of_row, scores);
    float product = 0;
#pragma omp simd reduction(+ : product)
    for (std::ptrdiff_t j = 0; j < extent.tokens; ++j) product += scores[j] * gradients[j];
#pragma omp simd
    for (std::ptrdiff_t j = 0; j < extent.tokens; ++j) {
      gradients[j] = scores[j] * (gradients[j] - product);
    }
  }
  LOCKSTEP_INLINED void run_head(std::ptrdiff_t head, float* memory) const {
    const std::ptrdiff_t channels = extent.channels();
    const HeadPlace place(extent, head);
    const T* const queries = source + place.input;
    T* const query_gradients = target + place.input;
    const T* const gradients = gradient + place.output;
    pack(extent, queries + 2 * channels, extent.row(), extent.tokens, 1, memory + at.rows);
    transpose(extent, memory + at.rows, memory + at.values_transposed);
    pack(extent, queries + channels, extent.row(), extent.tokens, 1, memory + at.rows);
    transpose(extent, memory + at.rows, memory + at.keys_transposed);
    std::fill_n(memory + at.key_sums, extent.tokens * extent.columns(), 0.0F);
    std::fill_n(memory + at.value_sums, extent.tokens * extent.columns(), 0.0F);
    for (std::ptrdiff_t first = 0; first < extent.tokens; first += extent.block) {
      const std::ptrdiff_t rows = std::min(extent.block, extent.tokens - first);
      pack(extent, queries + first * extent.row(), extent.row(), rows, factor, memory + at.queries);
      pack(extent, gradients + first * channels, channels, rows, 1, memory + at.gradients);
      multiply_by_tokens(extent, memory + at.queries, memory + at.keys_transposed, rows,
                         memory + at.scores);
      multiply_by_tokens(extent, memory + at.gradients, memory + at.values_transposed, rows,
                         memory + at.score_gradients);
      for (std::ptrdiff_t row = 0; row < rows; ++row) {
        const std::ptrdiff_t begin = row * extent.token_columns();
        differentiate(normalizer[place.rows + first + row], memory + at.scores + begin,
                      memory + at.score_gradients + begin);
      }
      add_queries(extent, memory + at.scores, memory + at.gradients, rows, memory + at.value_sums);
      add_queries(extent, memory + at.score_gradients, memory + at.queries, rows,
                  memory + at.key_sums);
      sum_tokens(extent, memory + at.score_gradients, memory + at.rows, rows, memory + at.result);
      unpack(extent, memory + at.result, rows, factor, query_gradients + first * extent.row(),
             extent.row());
    }
    unpack(extent, memory + at.key_sums, extent.tokens, 1, query_gradients + channels,
           extent.row());
    unpack(extent, memory + at.value_sums, extent.tokens, 1, query_gradients + 2 * channels,
           extent.row());
  }
  void run() const {
    for_heads(extent, at.size, scratch,
              [this](std::ptrdiff_t head, float* memory)
                  LOCKSTEP_INLINED { run_head(head, memory); });
  }
};

/// Saves the normalizer of each row of scores.
class AttentionLowering final : public Lowering {
 public:
  AttentionLowering(const Attention& op, const LoweringContext& /*context*/) : op_(op) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const AttentionExtent extent = extent_of(builder, op.node);
    const Tensor source = builder.in_rows(builder.value(op.inputs[0]), "input of " + name());
    Tensor saved;
    if (op.saved) {
      saved = builder.make(vector(extent.samples * extent.heads * extent.tokens));
      builder.set_value(*op.saved, saved);
    }
    const Tensor target = builder.make_rows(op.node);
    builder.with_type([&]<typename T>(const T&) {
      const Tensor scratch =
          builder.make(vector(builder.state().threads * HeadLayout(extent, Pass::forward).size));
      builder.emit_loop("attention " + name(), {source, saved, target, scratch},
                        [extent, factor = factor_of(extent)](const LoopStep::Addresses& at) {
                          AttentionForward<T>{.extent = extent,
                                              .factor = factor,
                                              .source = static_cast<const T*>(at[0]),
                                              .normalizer = static_cast<float*>(at[1]),
                                              .target = static_cast<T*>(at[2]),
                                              .scratch = static_cast<float*>(at[3])}
                              .run();
                        });
    });
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const AttentionExtent extent = extent_of(builder, op.node);
    const std::string what = "gradient of attention " + name();
    const Tensor source = builder.in_rows(builder.value(op.inputs[0]), "input of " + name());
    const Tensor arrives = builder.in_rows(builder.value(op.grad_output[0]), what);
    const Tensor target =
        builder.overwritable(source, op.inputs[0]) ? source : builder.make(source.desc());
    builder.with_type([&]<typename T>(const T&) {
      const Tensor scratch =
          builder.make(vector(builder.state().threads * HeadLayout(extent, Pass::backward).size));
      builder.emit_loop(what, {source, builder.value(*op.saved), arrives, target, scratch},
                        [extent, factor = factor_of(extent)](const LoopStep::Addresses& at) {
                          AttentionBackward<T>{.extent = extent,
                                               .factor = factor,
                                               .source = static_cast<const T*>(at[0]),
                                               .normalizer = static_cast<const float*>(at[1]),
                                               .gradient = static_cast<const T*>(at[2]),
                                               .target = static_cast<T*>(at[3]),
                                               .scratch = static_cast<float*>(at[4])}
                              .run();
                        });
    });
    builder.set_value(*op.grad_inputs[0], target);
  }

 private:
  [[nodiscard]] const std::string& name() const noexcept { return op_.options.name; }
  [[nodiscard]] AttentionExtent extent_of(const ProgramBuilder& builder, ValueId node) const {
    const Shape shape = builder.batch_shape(node);
    const std::int64_t heads = op_.options.heads;
    return {.samples = shape[0], .tokens = shape[2], .heads = heads, .width = shape[1] / heads};
  }
  [[nodiscard]] static float factor_of(const AttentionExtent& extent) {
    return 1.0F / std::sqrt(static_cast<float>(extent.width));
  }

  Attention op_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Attention& op,
                                               const LoweringContext& context) {
  return std::make_unique<AttentionLowering>(op, context);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Attention>;
