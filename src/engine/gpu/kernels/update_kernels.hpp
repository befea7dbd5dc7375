#pragma once

#include "kernels.hpp"

#include <cstddef>
#include <cstdint>

/// The optimizers' kernels, by the rules of kernels.hpp.
namespace lockstep::gpu {

/// Arena ranges begin on multiples of this many values. A block is of one tensor or of padding.
inline constexpr std::size_t arena_block = 16;

/// Per-tensor values of an update.
struct TensorUpdate {
  double lr;  ///< factor on UpdateRange::lr: lr_scale, times a trust ratio if it adapts
  float weight_decay;
  double lr_scale = 1;  ///< 0: frozen, not updated
};
/// Whether an update is made, and the factor on its gradients; in device memory.
struct UpdateDecision {
  double gradient_norm;  ///< of all gradients, multiplied by UpdateTerms::scale; 0: not measured
  float gradient_scale;
  std::uint32_t made;
};
/// All pointers are to device memory.
struct UpdateTerms {
  const float* samples;     ///< of all ranks; no update unless equal to all_samples
  double all_samples;       ///< of the step
  const float* not_finite;  ///< number of ranks whose loss was not finite
  const double* squares;    ///< of each tensor's gradients; null: norm not needed
  std::size_t tensors;
  double scale;         ///< multiplies all gradients
  double clip_norm;     ///< maximum of the gradients' norm; 0: no clipping
  bool skips_overflow;  ///< no update if the norm or a loss is not finite
};
void decide_update(Stream stream, const UpdateTerms& terms, UpdateDecision* decision);

/// The arena's values [begin, end), multiples of arena_block. `tensor_of_block` gives, for every
/// block of the whole arena, the index in `tensors` of its tensor; padding belongs to a neighbour.
struct UpdateRange {
  std::size_t begin;
  std::size_t end;
  float* parameters;
  const float* gradients;
  const std::uint32_t* tensor_of_block;
  const TensorUpdate* tensors;
  float gradient_scale;
  double lr = 1;
  const UpdateDecision* decision = nullptr;  ///< replaces gradient_scale; null: the update is made
};
/// By a rule of optim/update_rules.hpp that keeps one value, whose members per tensor are set here.
template <typename Rule>
void momentum_update(Stream stream, const UpdateRange& range, Rule rule, float* values);
/// Each tensor's factor on the learning rate, its trust ratio, from the sums of squares of its
/// weights and of its gradients or, `of_steps`, of its whole steps; tensors that do not adapt keep
/// theirs.
struct TrustRatios {
  const double* weight_squares;
  const double* move_squares;
  bool of_steps;
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
  bool decoupled_decay;  ///< adamw, lamb
};
void adam_update(Stream stream, const UpdateRange& range, const AdamUpdate& options, float* exp_avg,
                 float* exp_avg_sq);

/// The moving average of the range's parameters, after their update; as update_average().
void average_update(Stream stream, const UpdateRange& range, double decay, float* average);

/// As squared_norms(), of the steps that adam_update() would make at a learning rate of 1; for
/// LAMB.
void adam_step_norms(Stream stream, const UpdateRange& range, const AdamUpdate& options,
                     const float* exp_avg, const float* exp_avg_sq, std::size_t tensors,
                     double* sums, void* workspace);

/// Sums of squares, in fp64, of each tensor's values, for LARS and clipping. `sums` has one entry
/// per tensor; a tensor's blocks must be contiguous; 0 for a tensor without blocks.
void squared_norms(Stream stream, const float* arena, std::size_t blocks,
                   const std::uint32_t* tensor_of_block, std::size_t tensors, double* sums,
                   void* workspace);
[[nodiscard]] std::size_t squared_norms_workspace(std::size_t blocks, std::size_t tensors);

}  // namespace lockstep::gpu
