#include "../lowering.hpp"
#include "../pool_extent.hpp"

#include <optional>

namespace lockstep::gpu {
namespace {

class MaxPoolLowering final : public Lowering {
 public:
  MaxPoolLowering(const MaxPool& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    extent_ = pool_extent(builder, op_.input, id_, op_.options);
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(id_);
    std::vector<Tensor> touched{x, y};
    std::optional<Tensor> index;
    if (op.saved) {
      index = builder.make(builder.extent(id_).values());
      touched.push_back(*index);
      builder.set_value(*op.saved, *index);
    }
    builder.emit(
        "max pool", touched,
        [x, y, index, extent = extent_, type = builder.type()](const LaunchContext& context) {
          max_pool_forward(context.stream(), type, extent, context.at(x), context.at(y),
                           context.as<std::uint8_t>(index));
        });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.make_like(op_.input);
    const Tensor index = builder.value(*op.saved);
    builder.emit(
        "gradient of max pool", {dy, dx, index},
        [dy, dx, index, extent = extent_, type = builder.type()](const LaunchContext& context) {
          max_pool_backward(context.stream(), type, extent, context.at(dy),
                            context.as<std::uint8_t>(index), context.at(dx));
        });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  MaxPool op_;
  ValueId id_;
  PoolExtent extent_{};
};

class AvgPoolLowering final : public Lowering {
 public:
  AvgPoolLowering(const AvgPool& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(id_);
    builder.emit(
        "average pool", {x, y},
        [x, y, extent = extent(builder), type = builder.type()](const LaunchContext& context) {
          avg_pool_forward(context.stream(), type, extent, context.at(x), context.at(y));
        });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.make_like(op_.input);
    builder.emit(
        "gradient of average pool", {dy, dx},
        [dy, dx, extent = extent(builder), type = builder.type()](const LaunchContext& context) {
          avg_pool_backward(context.stream(), type, extent, context.at(dy), context.at(dx));
        });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  [[nodiscard]] PoolExtent extent(const ProgramBuilder& builder) const {
    PoolExtent result = pool_extent(builder, op_.input, id_, op_.options);
    result.partial_windows = op_.options.partial_windows;
    return result;
  }

  AvgPool op_;
  ValueId id_;
};

class GlobalAvgPoolLowering final : public Lowering {
 public:
  GlobalAvgPoolLowering(const GlobalAvgPool& op, const LoweringContext& context)
      : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(id_);
    builder.emit("global average pool", {x, y},
                 [x, y, in = builder.extent(op_.input),
                  type = builder.type()](const LaunchContext& context) {
                   global_avg_pool_forward(context.stream(), type, in.batch, in.height * in.width,
                                           in.padded, context.at(x), context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.make_like(op_.input);
    builder.emit("gradient of global average pool", {dy, dx},
                 [dy, dx, in = builder.extent(op_.input),
                  type = builder.type()](const LaunchContext& context) {
                   global_avg_pool_backward(context.stream(), type, in.batch, in.height * in.width,
                                            in.padded, context.at(dy), context.at(dx));
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  GlobalAvgPool op_;
  ValueId id_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const MaxPool& op, const LoweringContext& context) {
  return std::make_unique<MaxPoolLowering>(op, context);
}

static std::unique_ptr<Lowering> make_lowering(const AvgPool& op, const LoweringContext& context) {
  return std::make_unique<AvgPoolLowering>(op, context);
}

static std::unique_ptr<Lowering> make_lowering(const GlobalAvgPool& op,
                                               const LoweringContext& context) {
  return std::make_unique<GlobalAvgPoolLowering>(op, context);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::MaxPool>;
template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::AvgPool>;
template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::GlobalAvgPool>;
