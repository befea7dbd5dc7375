#include "lockstep/step/step_graph.hpp"

#include "index.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep {
namespace {

class Differentiation final {
 public:
  Differentiation(StepGraph steps, const Graph& graph, const Fusions& fusions)
      : steps_(std::move(steps)),
        graph_(graph),
        fusions_(fusions),
        needed_(needs_gradient(graph)),
        gradients_(steps_.values.size()) {}

  StepGraph run() {
    const StepValueId logits = graph_.logits();
    const StepValueId first = make_gradient(logits);
    const std::size_t forward = steps_.ops.size();
    steps_.ops.push_back({.kind = StepOp::Kind::loss_gradient,
                          .node = static_cast<ValueId>(graph_.nodes().size() - 1),
                          .output = first});
    contribute(logits, first);
    for (std::size_t i = forward; i-- > 0;) {
      if (steps_.ops[i].kind == StepOp::Kind::forward) differentiate(i);
    }
    return std::move(steps_);
  }

 private:
  using Ids = std::vector<StepValueId>;

  void differentiate(std::size_t index) {
    const StepOp op = steps_.ops[index];  // a copy: the list grows
    const Node& node = graph_.nodes()[at(op.node)];
    if (!needed_[at(*op.output)]) return complete(node.parameters);
    if (op.fused.only_statistics) return contribute(op.inputs[0], take(*op.output, false)[0]);
    const bool is_norm = std::holds_alternative<BatchNorm>(node.op);
    const std::span<const GradientOp> rule = rule_of(node.op);
    const bool adds = is_norm ? !op.fused.pool : fusions_.relu_takes_sums && is_relu(node, op);
    Ids grad_output = take(*op.output, adds);
    if (op.fused.relu && !is_norm) grad_output = {emit_relu(op, std::move(grad_output))};
    if (rule.empty()) {
      for (const StepValueId input : op.inputs) contribute(input, grad_output[0]);
    }
    for (const GradientOp& each : rule) emit(index, op, each, grad_output);
  }

  [[nodiscard]] static std::span<const GradientOp> rule_of(const Op& op) {
    return std::visit(
        [](const auto& each) -> std::span<const GradientOp> {
          if constexpr (requires { each.gradient; }) return each.gradient;
          return {};
        },
        op);
  }
  /// Whether the gradient that arrives is first that of a ReLU.
  [[nodiscard]] static bool is_relu(const Node& node, const StepOp& op) {
    return op.fused.relu || std::holds_alternative<Relu>(node.op);
  }

  /// Of a ReLU that is fused into an addition. Returns the gradient of the addition.
  StepValueId emit_relu(const StepOp& op, Ids grad_output) {
    const StepValueId result = make_gradient(op.node);
    steps_.ops.push_back({.kind = StepOp::Kind::gradient,
                          .node = *op.fused.relu,
                          .output = op.output,
                          .gradient = Relu::gradient[0],
                          .grad_output = std::move(grad_output),
                          .grad_inputs = {result}});
    return result;
  }

  /// `index`: of the node's forward op.
  void emit(std::size_t index, const StepOp& op, const GradientOp& part, const Ids& grad_output) {
    const Node& node = graph_.nodes()[at(op.node)];
    const std::size_t own_inputs = op.inputs.size() - (op.fused.sum ? 1 : 0);
    const bool trains = std::ranges::any_of(node.parameters, [this](ParameterId id) {
      return !graph_.parameters()[at(id)].is_frozen();
    });
    const bool reaches =
        std::ranges::any_of(op.inputs, [this](StepValueId input) { return needed_[at(input)]; });
    if (!(part.of_parameters && trains) && !(part.of_inputs && reaches)) {
      return part.of_parameters ? complete(node.parameters) : void();
    }
    StepOp step{.kind = StepOp::Kind::gradient,
                .node = op.node,
                .fused = op.fused,
                .gradient = part,
                .grad_output = grad_output};
    if (part.reads_inputs) {
      const std::size_t count = own_inputs + (op.fused.added_norm ? 1 : 0);
      step.inputs.assign(op.inputs.begin(), op.inputs.begin() + static_cast<std::ptrdiff_t>(count));
    }
    if (part.reads_output) step.output = op.output;
    if (part.reads_saved || op.fused.relu) step.saved = saved_by(index);
    if (part.of_parameters) step.completes = node.parameters;
    Ids sources;
    if (part.of_inputs) {
      // Of a fused addition without a ReLU, the gradient of the other operand is what arrives.
      const bool passes =
          op.fused.sum && !op.fused.relu && !op.fused.added_norm && grad_output.size() == 1;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const bool own = needed_[at(op.inputs[i])] && !(passes && i == own_inputs);
        step.grad_inputs.push_back(own ? std::optional(make_gradient(op.inputs[i])) : std::nullopt);
        sources.push_back(own ? *step.grad_inputs.back() : grad_output[0]);
      }
    }
    steps_.ops.push_back(std::move(step));
    for (std::size_t i = 0; i < sources.size(); ++i) contribute(op.inputs[i], sources[i]);
  }

  [[nodiscard]] StepValueId make_gradient(ValueId of) {
    return steps_.add({.kind = StepValue::Kind::gradient, .of = of});
  }
  [[nodiscard]] StepValueId saved_by(std::size_t forward) {
    StepOp& op = steps_.ops[forward];
    if (!op.saved) op.saved = steps_.add({.kind = StepValue::Kind::saved, .of = op.node});
    return *op.saved;
  }
  void complete(const std::vector<ParameterId>& parameters) {
    auto& all = steps_.ops.back().completes;
    all.insert(all.end(), parameters.begin(), parameters.end());
  }

  /// Adds to the gradient of a value. The last addend stays pending, so that the op that reads the
  /// gradient can add it in the same pass.
  void contribute(StepValueId value, StepValueId gradient) {
    if (!needed_[at(value)]) return;
    Ids& addends = gradients_[at(value)];
    if (addends.size() == 2) add_up(value);
    addends.push_back(gradient);
  }
  void add_up(StepValueId value) {
    Ids& addends = gradients_[at(value)];
    const StepValueId sum = make_gradient(value);
    steps_.ops.push_back(
        {.kind = StepOp::Kind::sum, .node = value, .inputs = addends, .output = sum});
    addends = {sum};
  }
  /// The gradient of a value, or two addends of it if the reader adds them.
  [[nodiscard]] Ids take(StepValueId value, bool adds) {
    if (gradients_[at(value)].size() == 2 && !adds) add_up(value);
    return gradients_[at(value)];
  }

  StepGraph steps_;
  const Graph& graph_;
  Fusions fusions_;
  std::vector<bool> needed_;    ///< by node
  std::vector<Ids> gradients_;  ///< by value of the network: one or two addends
};

}  // namespace

StepGraph differentiate(StepGraph steps, const Graph& graph, const Fusions& fusions) {
  return Differentiation(std::move(steps), graph, fusions).run();
}

}  // namespace lockstep
