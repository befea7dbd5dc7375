#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <algorithm>
#include <cmath>

/// Attention by products of small matrices whose scores are stored in fp32, for some samples at a
/// time. For any type and size; no tensor cores.
namespace lockstep::gpu {
namespace {

/// Element (i, j) of the matrix of a head of a sample.
template <typename T>
struct Strided {
  T* data;
  std::int64_t sample;
  std::int64_t head;
  std::int64_t row;
  std::int64_t column;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE T* matrix(const Division& of) const {
    return data + of.quotient * sample + of.rest * head;
  }
  [[nodiscard]] Strided transposed() const { return {data, sample, head, column, row}; }
};

/// out (rows, columns) = factor * left (rows, depth) * right (depth, columns), for each head of
/// each sample. One item per value.
template <typename Left, typename Right, typename Out>
struct HeadProducts {
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  float factor;
  Strided<const Left> left;
  Strided<const Right> right;
  Strided<Out> out;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division column = divide(item, columns);
    const Division row = divide(column.quotient, rows);
    const Division head = divide(row.quotient, heads);
    const Left* a = left.matrix(head) + row.rest * left.row;
    const Right* b = right.matrix(head) + column.rest * right.column;
    float sum = 0;
    for (std::int64_t k = 0; k < depth; ++k, a += left.column, b += right.row) {
      sum += to_float(*a) * to_float(*b);
    }
    out.matrix(head)[row.rest * out.row + column.rest * out.column] = from_float<Out>(sum * factor);
  }
};

constexpr int lanes = 32;

/// scores := probabilities, by row.
struct Softmax {
  struct Partial {
    float maximum;
    float sum;  ///< of exp(score - maximum)
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      const float larger = maximum > other.maximum ? maximum : other.maximum;
      sum = scaled(larger) + other.scaled(larger);
      maximum = larger;
    }
    [[nodiscard]] LOCKSTEP_HOST_DEVICE float scaled(float larger) const {
      return sum == 0 ? 0.0F : sum * std::exp(maximum - larger);
    }
  };
  std::int64_t tokens;
  float* scores;
  float* normalizers;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t row, int lane) const {
    const float* const values = scores + row * tokens;
    Partial result{-HUGE_VALF, 0};
    for (std::int64_t j = lane; j < tokens; j += lanes) {
      if (values[j] > result.maximum) result.maximum = values[j];
    }
    for (std::int64_t j = lane; j < tokens; j += lanes) {
      result.sum += std::exp(values[j] - result.maximum);
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t row, int lane, const Partial& total) const {
    float* const values = scores + row * tokens;
    for (std::int64_t j = lane; j < tokens; j += lanes) {
      values[j] = std::exp(values[j] - total.maximum) / total.sum;
    }
    if (lane == 0 && normalizers != nullptr) {
      normalizers[row] = total.maximum + std::log(total.sum);
    }
  }
};

/// scores := probabilities P, and gradients of P := gradients of the scores, by row.
struct SoftmaxGradient {
  struct Partial {
    float product;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) { product += other.product; }
  };
  std::int64_t tokens;
  const float* normalizers;
  float* scores;
  float* gradients;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t row, int lane) const {
    float* const values = scores + row * tokens;
    Partial result{0};
    for (std::int64_t j = lane; j < tokens; j += lanes) {
      values[j] = std::exp(values[j] - normalizers[row]);
      result.product += values[j] * gradients[row * tokens + j];
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t row, int lane, const Partial& total) const {
    for (std::int64_t j = row * tokens + lane; j < (row + 1) * tokens; j += lanes) {
      gradients[j] = scores[j] * (gradients[j] - total.product);
    }
  }
};

/// Zeros after the channels of each row. One item per value.
template <typename T>
struct ClearPadding {
  std::int64_t channels;
  std::int64_t padded;
  T* values;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded - channels);
    values[place.quotient * padded + channels + place.rest] = from_float<T>(0);
  }
};

std::int64_t scores_of(const AttentionExtent& extent) {
  return extent.heads * extent.tokens * extent.tokens;
}
/// Samples whose scores are in the workspace at once.
std::int64_t samples_at_once(const AttentionExtent& extent) {
  constexpr std::int64_t most_scores = std::int64_t{1} << 24;
  return std::clamp(most_scores / scores_of(extent), std::int64_t{1}, extent.batch);
}

template <typename Left, typename Right, typename Out>
void multiply(Stream stream, const AttentionExtent& part,
              const HeadProducts<Left, Right, Out>& product) {
  launch(stream, part.batch * part.heads * product.rows * product.columns, product);
}

/// The matrices of some samples.
template <typename T>
struct Matrices {
  AttentionExtent extent;
  std::int64_t first;  ///< sample
  float factor;
  float* workspace;

  template <typename Value>
  [[nodiscard]] Strided<Value> rows_of(Value* data, std::int64_t padded, int part) const {
    return {data + first * extent.tokens * padded + part * extent.heads * extent.width,
            extent.tokens * padded, extent.width, padded, 1};
  }
  [[nodiscard]] Strided<const T> query(const void* qkv) const { return input(qkv, 0); }
  [[nodiscard]] Strided<const T> key(const void* qkv) const { return input(qkv, 1); }
  [[nodiscard]] Strided<const T> value(const void* qkv) const { return input(qkv, 2); }
  [[nodiscard]] Strided<const T> input(const void* qkv, int part) const {
    return rows_of(static_cast<const T*>(qkv), extent.padded_input, part);
  }
  /// The first or second matrix of scores.
  template <typename Value>
  [[nodiscard]] Strided<Value> scores(int index) const {
    return {workspace + index * extent.batch * scores_of(extent), scores_of(extent),
            extent.tokens * extent.tokens, extent.tokens, 1};
  }
  [[nodiscard]] std::int64_t score_rows() const {
    return extent.batch * extent.heads * extent.tokens;
  }
  [[nodiscard]] std::int64_t first_row() const { return first * extent.heads * extent.tokens; }
  /// Matrix of scores `index` = scale * left * right^T.
  void multiply_scores(Stream stream, float scale, const Strided<const T>& left,
                       const Strided<const T>& right, int index) const {
    multiply(stream, extent,
             HeadProducts<T, T, float>{extent.heads, extent.tokens, extent.tokens, extent.width,
                                       scale, left, right.transposed(), scores<float>(index)});
  }
  /// out = scale * left * right, with `left` of scores.
  void multiply_tokens(Stream stream, float scale, const Strided<const float>& left,
                       const Strided<const T>& right, const Strided<T>& out) const {
    multiply(stream, extent,
             HeadProducts<float, T, T>{extent.heads, extent.tokens, extent.width, extent.tokens,
                                       scale, left, right, out});
  }
};

template <typename T, typename Use>
void for_samples(const AttentionExtent& extent, void* workspace, const Use& use) {
  const std::int64_t most = samples_at_once(extent);
  const float factor = 1.0F / std::sqrt(static_cast<float>(extent.width));
  for (std::int64_t first = 0; first < extent.batch; first += most) {
    AttentionExtent part = extent;
    part.batch = std::min(most, extent.batch - first);
    use(Matrices<T>{part, first, factor, static_cast<float*>(workspace)});
  }
}

template <typename T>
void clear_padding(Stream stream, const AttentionExtent& extent, std::int64_t channels,
                   std::int64_t padded, T* values) {
  if (channels == padded) return;
  launch(stream, extent.batch * extent.tokens * (padded - channels),
         ClearPadding<T>{channels, padded, values});
}

}  // namespace

std::size_t attention_workspace(const AttentionExtent& extent, AttentionPass pass) {
  const std::size_t matrices = pass == AttentionPass::forward ? 1 : 2;
  return matrices * static_cast<std::size_t>(samples_at_once(extent) * scores_of(extent)) *
         sizeof(float);
}

void attention_forward(Stream stream, DataType type, const AttentionExtent& extent, const void* qkv,
                       float* normalizers, void* y, void* workspace) {
  with_type(type, [&]<typename T>(T*) {
    auto* const out = static_cast<T*>(y);
    for_samples<T>(extent, workspace, [&](const Matrices<T>& of) {
      of.multiply_scores(stream, of.factor, of.query(qkv), of.key(qkv), 0);
      float* const kept = normalizers == nullptr ? nullptr : normalizers + of.first_row();
      launch_rows(stream, of.score_rows(), lanes,
                  Softmax{extent.tokens, of.template scores<float>(0).data, kept});
      of.multiply_tokens(stream, 1, of.template scores<const float>(0), of.value(qkv),
                         of.rows_of(out, extent.padded, 0));
    });
    clear_padding(stream, extent, extent.heads * extent.width, extent.padded, out);
  });
}

void attention_backward(Stream stream, DataType type, const AttentionExtent& extent,
                        const void* qkv, const float* normalizers, const void* dy, void* dqkv,
                        void* workspace) {
  with_type(type, [&]<typename T>(T*) {
    auto* const out = static_cast<T*>(dqkv);
    for_samples<T>(extent, workspace, [&](const Matrices<T>& of) {
      const auto gradient = of.rows_of(static_cast<const T*>(dy), extent.padded, 0);
      const auto target = [&](int part) { return of.rows_of(out, extent.padded_input, part); };
      of.multiply_scores(stream, of.factor, of.query(qkv), of.key(qkv), 0);
      of.multiply_scores(stream, 1, gradient, of.value(qkv), 1);
      launch_rows(
          stream, of.score_rows(), lanes,
          SoftmaxGradient{extent.tokens, normalizers + of.first_row(),
                          of.template scores<float>(0).data, of.template scores<float>(1).data});
      const auto probabilities = of.template scores<const float>(0);
      const auto of_scores = of.template scores<const float>(1);
      of.multiply_tokens(stream, of.factor, of_scores, of.key(qkv), target(0));
      of.multiply_tokens(stream, of.factor, of_scores.transposed(), of.query(qkv), target(1));
      of.multiply_tokens(stream, 1, probabilities.transposed(), gradient, target(2));
    });
    clear_padding(stream, extent, 3 * extent.heads * extent.width, extent.padded_input, out);
  });
}

}  // namespace lockstep::gpu
