#pragma once

#include "../../losses/loss_terms.hpp"
#include "../data_type.hpp"
#include "../gpu_class.hpp"
#include "column_gather.hpp"
#include "divisor.hpp"
#include "lockstep/core/dropped_blocks.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/core/pixel_cut.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// The engine's own kernels. A function queues its kernels in `stream` and returns. Pointers are to
/// device memory, aligned to 256 bytes, or to 64 bytes if they point into an arena.
///
/// Values are (rows, padded): a row is a pixel of the batch, in (N, H, W) order; `padded` is the
/// number of channels as stored, of which the last padded - channels are zero and must stay zero.
/// "T" is the type given by the DataType argument; arithmetic is in fp32. Results are bit-identical
/// in every run (no floating-point atomics). A tensor has fewer than 2^34 values.
///
/// The same sources compile for the host, where a kernel is a loop and a queue a HostStream, so
/// that everything but the launch is tested on any machine.
namespace lockstep::gpu {

using Stream = void*;  ///< a cudaStream_t; on the host a HostStream; null: runs at once

// --- Element-wise -------------------------------------------------------------------------------

/// Converts `count` values; `to` may be `from` if the types have the same size.
void convert(Stream stream, const void* from, DataType from_type, void* to, DataType to_type,
             std::size_t count);
/// *to = value, which travels with the launch, so no memory of the host needs to keep it.
void set_value(Stream stream, float value, float* to);
/// out = left + right; out may be one of them.
void add(Stream stream, DataType type, const void* left, const void* right, void* out,
         std::size_t count);
/// to[i] = factor * from[i].
void scale(Stream stream, const float* from, float factor, float* to, std::size_t count);
/// The kernels of an element-wise op, whose function must be 0 at 0, so that padding stays zero.
template <typename Op>
struct ElementWise {
  /// y may be x. NaN stays NaN.
  static void forward(Stream stream, DataType type, const void* x, void* y, std::size_t count);
  /// `operand`: what the op's derivative reads, x or y. dx may be dy.
  static void backward(Stream stream, DataType type, const void* operand, const void* dy, void* dx,
                       std::size_t count);
};

/// A tensor of gradients and its place in an arena. `count` is a multiple of 8.
struct GradientConversion {
  const void* from;
  float* to;
  std::size_t count;
};
/// Converts tensors from T, of 16 bits, to fp32, up to 64 in a launch; `adds`: adds to the values
/// there.
void convert_gradients(Stream stream, DataType type,
                       std::span<const GradientConversion> conversions, bool adds);

// --- Input --------------------------------------------------------------------------------------

struct ImageExtent {
  std::int64_t batch;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t padded;
};
/// Converts fp32 (N, H, W, C) without padding to T (N, H, W, padded).
void pack_images(Stream stream, DataType type, const ImageExtent& extent, const float* images,
                 void* out);

/// uint8 (N, height, width, C) of any alignment, as data sets store them.
struct StoredImages {
  const std::uint8_t* data;
  std::int64_t height;
  std::int64_t width;
  const PixelCut* cuts;              ///< (count,)
  const float* values;               ///< (C, 256): network value of each pixel value
  std::int64_t count;                ///< later images of `extent` become zero
  void* workspace;                   ///< of cut_images_workspace() bytes
  const PixelBox* erased = nullptr;  ///< (count,), pixels of `extent` that are 0; null: none
  const ImageMix* mixes = nullptr;   ///< (count,); null: no image is mixed
};
/// For images of `extent` from stored ones of height x width.
[[nodiscard]] std::size_t cut_images_workspace(const ImageExtent& extent, std::int64_t height,
                                               std::int64_t width);
/// Crops, mirrors, resamples, normalises, erases and mixes to T (N, H, W, padded); bit-identical to
/// the CPU's result.
void cut_images(Stream stream, DataType type, const ImageExtent& extent, const StoredImages& stored,
                void* out);

/// An image of any size on the device, uint8 (H, W, 3), and where its resized part goes. Aligned
/// so that a device loads 16 bytes at once.
struct alignas(16) DecodedImage {
  const std::uint8_t* pixels;
  std::uint8_t* resized;  ///< (height, width, 3) of the extent
  std::int64_t width;
};
struct DecodedImages {
  const DecodedImage* images;  ///< (batch,)
  const ImageResize* resizes;  ///< (batch,), of regions inside the images
  std::int64_t most_taps;      ///< most ResampleTaps::most() of any axis
  void* workspace;             ///< of resize_images_workspace() bytes
};
[[nodiscard]] std::size_t resize_images_workspace(const ImageExtent& extent,
                                                  std::int64_t most_taps);
/// Resizes and crops each image to height x width of `extent`, which has 3 channels; bit-identical
/// to the CPU's result.
void resize_images(Stream stream, const ImageExtent& extent, const DecodedImages& decoded);

/// Gathers the columns of T (N, H, W, padded) images for a convolution.
void gather_columns(Stream stream, DataType type, const ColumnGather& gather, const void* images,
                    void* gathered);
/// The convolution's filters, in the order of gathered columns.
void gather_filters(Stream stream, DataType type, const ColumnGather& gather, const void* filters,
                    void* gathered);
/// Converts the gradients of gathered filters to fp32 in the order of the filters; `adds`: adds to
/// the values there.
void scatter_filters(Stream stream, DataType type, const ColumnGather& gather, const void* gathered,
                     float* gradient, bool adds);

// --- Batch norm ---------------------------------------------------------------------------------

struct Matrix {
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t padded;
  GpuClass gpu = GpuClass::sm_90;  ///< decides the order of sums over rows
};
/// Bytes of the `workspace` of reductions over rows. `norms`: of batch_norm_backward_sums().
[[nodiscard]] std::size_t reduction_workspace(const Matrix& extent, int norms = 1);

/// Each channel's, (padded) each; mean and variance are 0 in the padding.
struct NormStatistics {
  float* mean;
  float* variance;           ///< biased
  float* inverse_deviation;  ///< 1 / sqrt(variance + eps)
  float eps;
};
/// Uses shifted sums, so that a mean much larger than the deviation loses no digits.
void batch_norm_statistics(Stream stream, DataType type, const Matrix& extent, const void* x,
                           const NormStatistics& out, void* workspace);

/// Number of sums of a norm's values.
[[nodiscard]] std::size_t count_of_norm_sums(const Matrix& extent);
/// In place of the statistics, sums to be added over ranks: of values and of their squares,
/// (2, padded), then the number of rows. In fp64, since squares lose digits where a mean is large.
void batch_norm_sums(Stream stream, DataType type, const Matrix& extent, const void* x,
                     double* sums, void* workspace);
/// The statistics of all values in such sums, and how many values a channel has.
void statistics_of_sums(Stream stream, const Matrix& extent, const double* sums,
                        const NormStatistics& out, double* elements);
/// Multiplies sums over all ranks, (2, padded), by rows / *elements, for
/// batch_norm_backward_apply() over this rank's rows.
void scale_to_share(Stream stream, const Matrix& extent, const double* elements, float* sums);

/// Stochastic depth of a norm's output: it is 0 in the rows of samples that drop `block`, and
/// multiplied by `scale` in the others.
struct SampleDrop {
  DroppedBlocks dropped = {};  ///< on the device
  Divisor rows{1};             ///< of each sample
  int block = -1;              ///< -1: no stochastic depth
  float scale = 1.0F;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool any() const { return block >= 0; }
};

/// Inputs of a normalisation; all (padded), fp32. Weight and bias are 0 in the padding.
struct Normalization {
  const float* mean;
  const float* inverse_deviation;
  const float* weight;
  const float* bias;
  /// Applied to the output; a gradient is multiplied by the same factors. A norm to which another
  /// norm is added has none.
  SampleDrop drop = {};
};
/// y = relu?(((x - mean) * inverse_deviation * weight + bias) * drop [+ residual]). `mask`, if
/// not null, receives one bit per value, set where y > 0 (bit i % 8 of byte i / 8).
struct NormalizeOptions {
  const void* residual = nullptr;
  const Normalization* residual_norm = nullptr;  ///< of the residual, which is then rounded to T
  bool relu = false;
  std::uint8_t* mask = nullptr;
};
void batch_norm_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                      const Normalization& norm, const NormalizeOptions& options, void* y);

/// Gradient of the output of a norm and its ReLU: dy, or dy + other, rounded to T.
struct IncomingGradient {
  const void* dy;
  const void* other = nullptr;
  void* masked = nullptr;  ///< receives dy + other after the ReLU's mask; may be dy or other
};
/// Second destination of the gradients of a norm's parameters.
struct KeptGradients {
  float* weight = nullptr;
  float* bias = nullptr;
  bool adds = false;  ///< adds to the values there
};
/// A norm of x, and the gradients of its weight and bias, (padded) each.
struct NormSums {
  const void* x;
  Normalization norm;
  float* weight;
  float* bias;
  KeptGradients kept = {};
};
/// With g = the incoming gradient, 0 where `mask` is not null and its bit is not set: sums over
/// rows of g * (x - mean) * inverse_deviation and of g: the gradients of weight and bias.
/// `added`, if not null, is the norm that was added to this one's output; g is also its gradient.
/// Each norm's sums are over g times its factors of stochastic depth.
void batch_norm_backward_sums(Stream stream, DataType type, const Matrix& extent,
                              const IncomingGradient& incoming, const std::uint8_t* mask,
                              const NormSums& of, const NormSums* added, void* workspace);

/// A norm of x, its sums over all `elements` values of a channel, and the destination of x's
/// gradient.
struct NormGradient {
  const void* x;
  Normalization norm;
  const float* weight_gradient;
  const float* bias_gradient;
  void* dx;
};
/// The gradient of x, and that of the added operand: of x of the `added` norm, or, in `dz` if not
/// null (only with a mask), g. of.dx may be dy; dz may be dy if of.dx is not.
void batch_norm_backward_apply(Stream stream, DataType type, const Matrix& extent, const void* dy,
                               const std::uint8_t* mask, double elements, const NormGradient& of,
                               const NormGradient* added, void* dz);

// --- Layer norm ---------------------------------------------------------------------------------

/// (padded) each, 0 in the padding.
struct LayerNormalization {
  const float* weight;
  const float* bias;
  float eps;
};
/// Of each row's channels, (rows) each; null: not kept.
struct RowStatistics {
  float* means = nullptr;
  float* inverse_deviations = nullptr;  ///< 1 / sqrt(variance + eps), of the biased variance
};
/// y may be x. The order of a row's sums depends on the number of channels alone.
void layer_norm_forward(Stream stream, DataType type, const Matrix& extent, const void* x,
                        const LayerNormalization& norm, const RowStatistics& statistics, void* y);
/// dx may be dy or x.
void layer_norm_backward(Stream stream, DataType type, const Matrix& extent, const void* x,
                         const void* dy, const float* weight, const RowStatistics& statistics,
                         void* dx);
/// `workspace`: of reduction_workspace() bytes.
void layer_norm_parameter_gradients(Stream stream, DataType type, const Matrix& extent,
                                    const void* x, const void* dy, const RowStatistics& statistics,
                                    const KeptGradients& out, void* workspace);

// --- Tokens and attention -----------------------------------------------------------------------

/// Values are T (batch, tokens, padded).
struct TokenExtent {
  std::int64_t batch;
  std::int64_t tokens;
  std::int64_t padded;
};
/// y = the class token, then the pixels (batch, tokens - 1, padded), plus the positions (tokens,
/// padded).
void tokens_forward(Stream stream, DataType type, const TokenExtent& extent, const void* pixels,
                    const float* class_token, const float* positions, void* y);
/// Null: not written.
struct TokenGradients {
  float* class_token;
  float* positions;
  bool adds;  ///< to the values there
};
void tokens_parameter_gradients(Stream stream, DataType type, const TokenExtent& extent,
                                const void* dy, const TokenGradients& out);
/// Copies the samples' tokens from `first` on to samples of `extent`, with zeros after the last of
/// `from_tokens`.
void copy_tokens(Stream stream, DataType type, const TokenExtent& extent, const void* from,
                 std::int64_t from_tokens, std::int64_t first, void* to);

/// qkv is T (batch, tokens, padded_input), with q, k and v of (heads, width) each; the output is T
/// (batch, tokens, padded).
struct AttentionExtent {
  std::int64_t batch;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t padded_input;
  std::int64_t padded;
};
/// Largest number of scores of a sample, since a kernel counts them in 32 bits.
inline constexpr std::int64_t most_scores_of_sample = std::int64_t{1} << 31;
enum class AttentionPass { forward, backward };
[[nodiscard]] std::size_t attention_workspace(const AttentionExtent& extent, AttentionPass pass);
/// `normalizers`: (batch, heads, tokens), log of the sum of exp(score); null: not kept.
void attention_forward(Stream stream, DataType type, const AttentionExtent& extent, const void* qkv,
                       float* normalizers, void* y, void* workspace);
void attention_backward(Stream stream, DataType type, const AttentionExtent& extent,
                        const void* qkv, const float* normalizers, const void* dy, void* dqkv,
                        void* workspace);

// --- Pooling, flattening, bias ------------------------------------------------------------------

struct PoolExtent {
  std::int64_t batch;
  std::int64_t height;
  std::int64_t width;
  std::int64_t out_height;
  std::int64_t out_width;
  std::int64_t padded;
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
  bool partial_windows = false;  ///< for means: of the pixels within the image alone
  GpuClass gpu = GpuClass::sm_90;
};
/// `index`, if not null, receives one byte per output value: which of the window's kernel^2
/// positions holds the maximum (the first if several do; NaN counts as largest).
void max_pool_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                      void* y, std::uint8_t* index);
void max_pool_backward(Stream stream, DataType type, const PoolExtent& extent, const void* dy,
                       const std::uint8_t* index, void* dx);

/// Means of windows, in which padding counts as zeros unless windows are partial.
void avg_pool_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                      void* y);
void avg_pool_backward(Stream stream, DataType type, const PoolExtent& extent, const void* dy,
                       void* dx);

/// Means over the `area` pixels of each of `batch` images.
void global_avg_pool_forward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                             std::int64_t padded, const void* x, void* y);
void global_avg_pool_backward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                              std::int64_t padded, const void* dy, void* dx);

/// (N, H, W, padded) to (N, padded_features), features in the order (C, H, W), the rest 0.
void flatten_forward(Stream stream, DataType type, const ImageExtent& extent,
                     std::int64_t padded_features, const void* x, void* y);
void flatten_backward(Stream stream, DataType type, const ImageExtent& extent,
                      std::int64_t padded_features, const void* dy, void* dx);

/// y += bias (padded, fp32) in every row.
void add_bias(Stream stream, DataType type, const Matrix& extent, const float* bias, void* y);
/// Sums over rows, (padded): the gradient of a bias.
void sum_rows(Stream stream, DataType type, const Matrix& extent, const void* dy, float* sums,
              void* workspace);

// --- Loss ---------------------------------------------------------------------------------------

struct LossExtent {
  std::int64_t batch;
  std::int64_t classes;
  std::int64_t padded;
  bool measures_confidence = true;  ///< else Prediction::confidence is 0
};
struct LossInputs {
  const void* logits;  ///< T (N, padded)
  Targets targets;
  std::int64_t samples;  ///< of the batch that count
};
/// Of a batch: fp32 logits (N, classes), and per sample what backward reads of LossTerms, the loss,
/// and the prediction. The samples that do not count have infinity in `kept`, which tells backward
/// that their gradients are 0.
struct LossOutputs {
  float* logits;
  float* kept;
  float* losses;
  Prediction* predictions;
};
void loss_forward(Stream stream, DataType type, const LossExtent& extent, const LossTerms& loss,
                  const LossInputs& in, const LossOutputs& out);
/// d(*scale * sum of losses) / d(logits) as T (N, padded), zero in the padding.
void loss_backward(Stream stream, DataType type, const LossExtent& extent, const LossTerms& loss,
                   const LossOutputs& forward, const Targets& targets, const float* scale,
                   void* gradient);

}  // namespace lockstep::gpu
