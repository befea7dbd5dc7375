#include "pooled_norm.hpp"

#include "kernels/pooled_norm.hpp"
#include "norm_steps.hpp"
#include "pool_extent.hpp"

#include <optional>

namespace lockstep::gpu {
namespace {

std::size_t at(ValueId id) {
  return static_cast<std::size_t>(id);
}

/// The norm with which a pool can be computed.
std::optional<ValueId> norm_of(const Graph& graph, const GraphAnalysis& analysis,
                               const MaxPool& pool) {
  const auto& [kernel, stride, padding] = pool.options;
  if (!pools_with_norm(kernel, stride, padding)) return std::nullopt;
  const auto* relu = std::get_if<Relu>(&graph.nodes()[at(pool.input)].op);
  if (relu == nullptr || analysis.consumers[at(pool.input)] != 1) return std::nullopt;
  if (analysis.relu_of[at(relu->input)] != pool.input) return std::nullopt;
  const auto* norm = std::get_if<BatchNorm>(&graph.nodes()[at(relu->input)].op);
  if (norm == nullptr || norm->options.drop.probability != 0) return std::nullopt;
  return relu->input;
}

class PooledNormLowering final : public Lowering {
 public:
  PooledNormLowering(const BatchNorm& op, ValueId pool, const LoweringContext& context)
      : op_(op),
        id_(context.id),
        node_(context.node()),
        pool_(pool),
        pool_options_(std::get<MaxPool>(context.node(pool).op).options) {}

  void forward(ProgramBuilder& builder) override {
    extent_ = pool_extent(builder, id_, pool_, pool_options_);
    const Tensor x = builder.value(op_.input);
    if (takes_statistics(builder, node_)) {
      emit_norm_statistics(builder, node_, builder.extent(id_).matrix(), x);
    }
    const Tensor y = builder.make_like(pool_);
    const NormOperands norm = norm_operands(builder, node_);
    std::vector<Tensor> touched{x, y, norm.weight.tensor, norm.bias.tensor};
    if (builder.training()) {
      positions_ = builder.make(builder.extent(pool_).values());
      touched.push_back(*positions_);
    }
    builder.emit("batch norm " + name(), touched,
                 [x, y, norm, positions = positions_, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   pooled_norm_forward(context.stream(), type, extent, context.at(x),
                                       norm.at(context), context.at(y),
                                       positions ? context.as<std::uint8_t>(*positions) : nullptr);
                 });
    builder.set_value(pool_, y);
  }

  void backward(ProgramBuilder& builder) override {
    const Tensor dy = builder.gradient(pool_);
    const NormSumsOperands sums = norm_sums(builder, node_, builder.value(op_.input));
    const Matrix norm_extent = builder.extent(id_).matrix();
    const Tensor workspace = builder.make(reduction_workspace(norm_extent));
    std::vector<Tensor> touched{dy, *positions_, workspace};
    const NormSumsTarget target = norm_sums_target(builder, node_, sums, touched);
    const auto incoming = [dy, positions = *positions_](const LaunchContext& context) {
      return PooledGradient{.dy = context.at(dy),
                            .positions = context.as<const std::uint8_t>(positions)};
    };
    builder.emit("parameter gradients of batch norm " + name(), touched,
                 [incoming, target, workspace, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   pooled_norm_backward_sums(context.stream(), type, extent, incoming(context),
                                             target.at(context), context.at(workspace));
                 },
                 {node_.parameters[0], node_.parameters[1]});
    if (!builder.needs_gradient(op_.input)) return;
    emit_norm_share(builder, node_, norm_extent, sums);
    const Tensor dx = builder.make_like(op_.input);
    touched = {dy, *positions_, dx};
    sums.list(touched);
    builder.emit(
        "gradient of batch norm " + name(), touched,
        [incoming, sums, dx, extent = extent_, elements = static_cast<double>(norm_extent.rows),
         type = builder.type()](const LaunchContext& context) {
          pooled_norm_backward_apply(context.stream(), type, extent, incoming(context), elements,
                                     sums.gradient(context, context.at(dx)));
        });
    builder.contribute(op_.input, dx, ProgramBuilder::Ownership::exclusive);
  }

 private:
  [[nodiscard]] std::string name() const { return op_.options.name + " with max pool"; }

  BatchNorm op_;
  ValueId id_;
  const Node& node_;
  ValueId pool_;
  PoolOptions pool_options_;
  PoolExtent extent_{};
  std::optional<Tensor> positions_;
};

}  // namespace

void fuse_pools(const Graph& graph, GraphAnalysis& analysis) {
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const auto* pool = std::get_if<MaxPool>(&graph.nodes()[id].op);
    if (pool == nullptr) continue;
    const auto norm = norm_of(graph, analysis, *pool);
    if (!norm) continue;
    analysis.pooled_by[at(*norm)] = static_cast<ValueId>(id);
    analysis.fused_away[id] = true;
  }
}

std::unique_ptr<Lowering> lower_pooled_norm(const BatchNorm& op, ValueId pool,
                                            const LoweringContext& context) {
  return std::make_unique<PooledNormLowering>(op, pool, context);
}

}  // namespace lockstep::gpu
