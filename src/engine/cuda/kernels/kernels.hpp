#pragma once

#include "../data_type.hpp"
#include "lockstep/core/pixel_cut.hpp"

#include <cstddef>
#include <cstdint>

/// All the engine's own kernels. A function queues its kernels in `stream` and returns; pointers
/// are to device memory, aligned to 256 bytes unless they point into an arena (64 bytes).
///
/// Values are (rows, padded): rows are the pixels of a batch in (N, H, W) order, `padded` the
/// channels as stored, of which the last padded - channels are zero and must stay so. "T" is the
/// type named by the DataType argument; arithmetic is in fp32. Results are the same bits in every
/// run (no atomic additions of floating-point numbers). A tensor has fewer than 2^34 values.
///
/// The same sources compile for the host, where a kernel is a loop and a queue a HostStream, so
/// that everything but the launch is tested on any machine.
namespace lockstep::cuda {

using Stream = void*;  ///< a cudaStream_t; on the host a HostStream, null: at once

// --- Element-wise -------------------------------------------------------------------------------

/// `count` values from one type to another; `to` may be `from` where the sizes are equal.
void convert(Stream stream, const void* from, DataType from_type, void* to, DataType to_type,
             std::size_t count);
/// to[i] += from[i].
void add_converted(Stream stream, const void* from, DataType from_type, float* to,
                   std::size_t count);
/// out = left + right; out may be one of them.
void add(Stream stream, DataType type, const void* left, const void* right, void* out,
         std::size_t count);
/// NaN stays NaN.
void relu_forward(Stream stream, DataType type, const void* x, void* y, std::size_t count);
/// dx = y > 0 ? dy : 0; dx may be dy.
void relu_backward(Stream stream, DataType type, const void* y, const void* dy, void* dx,
                   std::size_t count);

// --- Input --------------------------------------------------------------------------------------

struct ImageExtent {
  std::int64_t batch;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t padded;
};
/// fp32 (N, H, W, C) without padding to T (N, H, W, padded).
void pack_images(Stream stream, DataType type, const ImageExtent& extent, const float* images,
                 void* out);

/// uint8 (N, height, width, C) of any alignment, as data sets store them.
struct StoredImages {
  const std::uint8_t* data;
  std::int64_t height;
  std::int64_t width;
  const PixelCut* cuts;  ///< (count,)
  const float* values;   ///< (C, 256): what each pixel value becomes
  std::int64_t count;    ///< the images of `extent` after these become zero
};
/// Crops, mirrors, resamples and normalises to T (N, H, W, padded); the same values as the
/// processor's way.
void cut_images(Stream stream, DataType type, const ImageExtent& extent, const StoredImages& stored,
                void* out);

// --- Batch norm ---------------------------------------------------------------------------------

struct Matrix {
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t padded;
};
/// Bytes of the `workspace` of reductions over rows; `norms`: that batch_norm_backward_sums is of.
[[nodiscard]] std::size_t reduction_workspace(const Matrix& extent, int norms = 1);

/// Mean and biased variance of each channel, (padded) each; 0 in the padding. Welford's or shifted
/// sums, so that a mean much larger than the deviation costs no digits.
void batch_norm_statistics(Stream stream, DataType type, const Matrix& extent, const void* x,
                           float* mean, float* variance, void* workspace);

/// What a normalisation is made of; all (padded), fp32. In the padding weight and bias are 0.
struct Normalization {
  const float* mean;
  const float* variance;  ///< biased
  const float* weight;
  const float* bias;
  float eps;
};
/// y = relu?((x - mean) / sqrt(variance + eps) * weight + bias [+ residual]). `mask`, where not
/// null, takes a bit for each value, set where y > 0 (bit i % 8 of byte i / 8).
struct NormalizeOptions {
  const void* residual = nullptr;
  const Normalization* residual_norm = nullptr;  ///< applied to it first, to values as stored
  bool relu = false;
  std::uint8_t* mask = nullptr;
};
void batch_norm_apply(Stream stream, DataType type, const Matrix& extent, const void* x,
                      const Normalization& norm, const NormalizeOptions& options, void* y);

/// What reaches the output of a norm and the ReLU behind it: dy, or the sum of two, rounded as
/// values are stored.
struct IncomingGradient {
  const void* dy;
  const void* other = nullptr;
  void* masked = nullptr;  ///< takes the sum of two as the ReLU passes it on; may be one of them
};
/// Where the gradients of a norm's parameters are kept, too.
struct KeptGradients {
  float* weight = nullptr;
  float* bias = nullptr;
  bool adds = false;  ///< to what is there
};
/// A norm of x, and the gradients of its weight and bias, (padded) each.
struct NormSums {
  const void* x;
  Normalization norm;
  float* weight;
  float* bias;
  KeptGradients kept = {};
};
/// With g = the incoming gradient, 0 where `mask` is not null and its bit is not set: the sums over
/// rows of g * (x - mean) / sqrt(variance + eps) and of g: gradients of weight and bias. `added`,
/// where not null, is the norm that was added to this one's values, of which g is the gradient too.
void batch_norm_backward_sums(Stream stream, DataType type, const Matrix& extent,
                              const IncomingGradient& incoming, const std::uint8_t* mask,
                              const NormSums& of, const NormSums* added, void* workspace);

/// A norm of x, the sums over all its `elements` values of a channel, and where the gradient of x
/// goes.
struct NormGradient {
  const void* x;
  Normalization norm;
  const float* weight_gradient;
  const float* bias_gradient;
  void* dx;
};
/// The gradient of x, and of what was added: of the x of a norm, or, in `dz` where not null, g.
/// of.dx may be dy; dz may be dy where of.dx is not.
void batch_norm_backward_apply(Stream stream, DataType type, const Matrix& extent, const void* dy,
                               const std::uint8_t* mask, double elements, const NormGradient& of,
                               const NormGradient* added, void* dz);

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
};
/// `index`, where not null: which of the window's kernel^2 places was taken (the first of the
/// largest; NaN counts as largest), a byte for each output value.
void max_pool_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                      void* y, std::uint8_t* index);
void max_pool_backward(Stream stream, DataType type, const PoolExtent& extent, const void* dy,
                       const std::uint8_t* index, void* dx);

/// Means over `area` pixels of each of `batch` images.
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
  double label_smoothing;
};
/// As cpu::SoftmaxLoss, for the first `samples` of the batch. Out: fp32 logits (N, classes), and
/// for each sample the log of the sum of exponentials, the loss, and how many logits are larger
/// than the label's (classes or 5, whichever is more, where there is NaN). The other samples of the
/// batch count for nothing: they get a loss of 0, as many larger logits as with NaN, and an
/// infinite log sum, by which the backward pass knows that their gradients are 0.
struct LossOutputs {
  float* logits;
  float* log_sums;
  float* losses;
  std::int32_t* larger;
};
void softmax_cross_entropy_forward(Stream stream, DataType type, const LossExtent& extent,
                                   const void* logits, const std::int32_t* labels,
                                   std::int64_t samples, const LossOutputs& out);
/// d(scale * sum of losses) / d(logits) as T (N, padded), zero in the padding.
void softmax_cross_entropy_backward(Stream stream, DataType type, const LossExtent& extent,
                                    const LossOutputs& forward, const std::int32_t* labels,
                                    float scale, void* gradient);

// --- Optimizer ----------------------------------------------------------------------------------

/// Arena ranges begin on multiples of this many values; a block is of one tensor or of padding.
inline constexpr std::size_t arena_block = 16;

/// What differs from tensor to tensor in an update.
struct TensorUpdate {
  double lr;  ///< its share of the range's: 1, or a trust ratio
  float weight_decay;
};
/// Whether an update is made, and what gradients are multiplied by before; in the device's memory.
struct UpdateDecision {
  double gradient_norm;  ///< of all gradients, multiplied by UpdateTerms::scale; 0: not measured
  float gradient_scale;
  std::uint32_t made;
};
/// All pointers are to the device's memory.
struct UpdateTerms {
  const float* samples;     ///< that the ranks had: the update is made where they are all of them
  double all_samples;       ///< of the step
  const float* not_finite;  ///< ranks whose loss was not finite
  const double* squares;    ///< of each tensor's gradients; null: nobody asks for their norm
  std::size_t tensors;
  double scale;         ///< multiplies all gradients
  double clip_norm;     ///< that their norm is brought down to; 0: it stays
  bool skips_overflow;  ///< no update where the norm or a loss is not finite
};
void decide_update(Stream stream, const UpdateTerms& terms, UpdateDecision* decision);

/// The arena's values [begin, end), multiples of arena_block; `tensor_of_block` names, for every
/// block of the whole arena, the entry of `tensors` it belongs to; padding belongs to a neighbour.
struct UpdateRange {
  std::size_t begin;
  std::size_t end;
  float* parameters;
  const float* gradients;
  const std::uint32_t* tensor_of_block;
  const TensorUpdate* tensors;
  float gradient_scale;
  double lr = 1;
  const UpdateDecision* decision = nullptr;  ///< instead of gradient_scale; null: it is made
};
struct SgdUpdate {
  float momentum;
  bool nesterov;
};
void sgd_update(Stream stream, const UpdateRange& range, const SgdUpdate& options,
                float* momentum_buffer);
void lars_update(Stream stream, const UpdateRange& range, float momentum, float* momentum_buffer);
/// Each tensor's share of the rate, its trust ratio, by the sums of squares of its weights and of
/// its gradients; those that do not adapt keep theirs.
struct TrustRatios {
  const double* weight_squares;
  const double* gradient_squares;
  const std::uint8_t* adapts;  ///< (tensors,)
  std::size_t tensors;
  double trust_coefficient;
  float gradient_scale;
  const UpdateDecision* decision;  ///< as in UpdateRange
};
void set_trust_ratios(Stream stream, const TrustRatios& ratios, TensorUpdate* updates);
struct AdamUpdate {
  double beta1;
  double beta2;
  double eps;
  double correction1;  ///< 1 - beta1^step
  double correction2;
  bool decoupled_decay;  ///< adamw
};
void adam_update(Stream stream, const UpdateRange& range, const AdamUpdate& options, float* exp_avg,
                 float* exp_avg_sq);

/// Sums of squares, in fp64, of each tensor's values: what LARS and clipping need. `sums` has an
/// entry for each of `tensors`, whose blocks must lie together; 0 for one without blocks.
void squared_norms(Stream stream, const float* arena, std::size_t blocks,
                   const std::uint32_t* tensor_of_block, std::size_t tensors, double* sums,
                   void* workspace);
[[nodiscard]] std::size_t squared_norms_workspace(std::size_t blocks, std::size_t tensors);

}  // namespace lockstep::cuda
