#include "lockstep/core/error.hpp"
#include "lockstep/graph/ops.hpp"

namespace lockstep {
namespace {

OpDefinition define_loss(const OpInputs& in, const LossRule& rule) {
  if (in.shapes[0] != Shape{in.classes}) {
    fail(ExitStatus::usage, "{}: the loss gets logits {} for {} classes", in.graph, in.names[0],
         in.classes);
  }
  if (!(rule.label_smoothing >= 0 && rule.label_smoothing < 1)) {
    fail(ExitStatus::usage, "{}: label smoothing {} (it must be at least 0 and below 1)", in.graph,
         rule.label_smoothing);
  }
  if (!(rule.target_threshold >= 0 && rule.target_threshold < 1)) {
    fail(ExitStatus::usage, "{}: target threshold {} (it must be at least 0 and below 1)", in.graph,
         rule.target_threshold);
  }
  return {.output = {}};
}

}  // namespace

OpDefinition SoftmaxCrossEntropy::define(const OpInputs& in) const {
  return define_loss(in, rule());
}

OpDefinition BinaryCrossEntropy::define(const OpInputs& in) const {
  return define_loss(in, rule());
}

}  // namespace lockstep
