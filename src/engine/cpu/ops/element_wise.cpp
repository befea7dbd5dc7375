#include "../lowering.hpp"

#include <memory>
#include <string>
#include <utility>

namespace lockstep::cpu {
namespace {

/// An op on each value of its input, in place if nothing else reads that. The function must be 0 at
/// 0, so that padding stays zero.
class ElementWiseLowering : public Lowering {
 public:
  explicit ElementWiseLowering(std::string name) : name_(std::move(name)) {}

  void forward(ProgramBuilder& builder, const StepOp& op) final {
    const Tensor source = builder.value(op.inputs[0]);
    const Tensor target = builder.overwritable(op.inputs[0]) ? source : builder.make(source.desc());
    emit_forward(builder, source, target);
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) final {
    // What the derivative reads: the output or the input.
    const Tensor operand = builder.value(op.output ? *op.output : op.inputs[0]);
    const GradOutput grad_output = builder.grad_output(op, operand.desc(), "gradient of " + name_);
    const Tensor target = grad_output.target ? *grad_output.target : builder.make(operand.desc());
    emit_gradient(builder, operand, grad_output, target);
    builder.set_value(*op.grad_inputs[0], target);
  }

 protected:
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  virtual void emit_forward(ProgramBuilder& builder, const Tensor& source,
                            const Tensor& target) = 0;
  virtual void emit_gradient(ProgramBuilder& builder, const Tensor& operand,
                             const GradOutput& grad_output, const Tensor& target) = 0;

  std::string name_;
};

/// By a primitive of oneDNN.
class PrimitiveLowering final : public ElementWiseLowering {
 public:
  PrimitiveLowering(std::string name, dnnl::algorithm algorithm)
      : ElementWiseLowering(std::move(name)), algorithm_(algorithm) {}

 private:
  using Forward = dnnl::eltwise_forward;
  using Backward = dnnl::eltwise_backward;

  void emit_forward(ProgramBuilder& builder, const Tensor& source, const Tensor& target) override {
    forward_ = checked(name(), [&] {
      return with_source_and_target(source.desc(), [&](const auto&... ends) {
        return primitive_desc<Forward>(builder.engine(), ProgramBuilder::attributes(),
                                       builder.forward_kind(), algorithm_, ends..., 0.0F, 0.0F);
      });
    });
    builder.emit(name(), Forward(forward_), forward_.scratchpad_desc(),
                 {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}});
  }

  void emit_gradient(ProgramBuilder& builder, const Tensor& operand, const GradOutput& grad_output,
                     const Tensor& target) override {
    const std::string what = "gradient of " + name();
    const auto pd = checked(what, [&] {
      return with_source_and_target(operand.desc(), [&](const auto&... ends) {
        return backward_primitive_desc<Backward>(builder.engine(), ProgramBuilder::attributes(),
                                                 forward_, algorithm_, ends..., operand.desc(),
                                                 0.0F, 0.0F);
      });
    });
    builder.emit(what, Backward(pd), pd.scratchpad_desc(),
                 {{DNNL_ARG_SRC, operand},
                  {DNNL_ARG_DIFF_DST, grad_output.first},
                  {DNNL_ARG_DIFF_SRC, target}});
  }

  dnnl::algorithm algorithm_;
  Forward::primitive_desc forward_;
};

/// A ReLU that is not fused into a norm or an add. Its gradient adds two addends in the same pass.
class ReluLowering final : public ElementWiseLowering {
 public:
  ReluLowering() : ElementWiseLowering("relu") {}

 private:
  void emit_forward(ProgramBuilder& builder, const Tensor& source, const Tensor& target) override {
    builder.emit(std::make_unique<ReluStep>(source.memory, target.memory), {source, target});
  }

  void emit_gradient(ProgramBuilder& builder, const Tensor& operand, const GradOutput& grad_output,
                     const Tensor& target) override {
    std::vector<Tensor> touched{operand, grad_output.first, target};
    if (grad_output.second) touched.push_back(*grad_output.second);
    builder.emit(std::make_unique<ReluBackwardStep>(ReluBackwardStep::Operands{
                     .output = operand.memory,
                     .gradient = grad_output.first.memory,
                     .addend = grad_output.second ? grad_output.second->memory : dnnl::memory(),
                     .target = target.memory}),
                 touched);
  }
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Relu& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<ReluLowering>();
}

static std::unique_ptr<Lowering> make_lowering(const Gelu& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<PrimitiveLowering>("gelu", dnnl::algorithm::eltwise_gelu_erf);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Relu>;
template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Gelu>;
