#pragma once

#include "program_builder.hpp"

#include <cstddef>
#include <optional>
#include <vector>

/// Operands of the steps of batch norms.
namespace lockstep::gpu {

/// A norm's operands in one pass; its parameters' addresses may differ between passes.
struct NormOperands {
  const float* mean;
  const float* inverse_deviation;
  Address weight;
  Address bias;
  SampleDrop drop;  ///< without the batch's masks
  [[nodiscard]] Normalization at(const LaunchContext& context) const;
};
[[nodiscard]] NormOperands norm_operands(ProgramBuilder& builder, const Node& node);

/// Backward of a norm. The data gradient needs the sums over this batch alone, so they are kept
/// separately when gradients accumulate.
struct NormSumsOperands {
  Tensor x;
  NormOperands norm;
  Address weight;  ///< of sums, directly followed by `bias`
  Address bias;
  std::size_t bytes;  ///< of both
  /// Whether statistics do not depend on the batch, so that the data gradient needs sums of zero.
  bool is_fixed;
  void list(std::vector<Tensor>& touched) const;
  /// Clears the sums of fixed statistics.
  [[nodiscard]] NormGradient gradient(const LaunchContext& context, void* dx) const;
};
/// Of a node's norm, whose input is `x`.
[[nodiscard]] NormSumsOperands norm_sums(ProgramBuilder& builder, const Node& node, Tensor x);

/// The sums, and the parameters' gradients that also receive them.
struct NormSumsTarget {
  NormSumsOperands sums;
  std::optional<Address> weight;  ///< empty: frozen
  std::optional<Address> bias;
  [[nodiscard]] NormSums at(const LaunchContext& context) const;
};
/// Adds the operands to those that a step touches.
[[nodiscard]] NormSumsTarget norm_sums_target(ProgramBuilder& builder, const Node& node,
                                              const NormSumsOperands& sums,
                                              std::vector<Tensor>& touched);

/// Whether a pass normalises with statistics of the batch.
[[nodiscard]] bool takes_statistics(ProgramBuilder& builder, const Node& node);
/// The statistics of a norm of x over the batch, of all ranks if norms are synchronised.
void emit_norm_statistics(ProgramBuilder& builder, const Node& node, const Matrix& extent,
                          Tensor x);
/// Replaces a norm's sums by this rank's share of those over all ranks, if its statistics are over
/// all ranks.
void emit_norm_share(ProgramBuilder& builder, const Node& node, const Matrix& extent,
                     const NormSumsOperands& sums);

}  // namespace lockstep::gpu
