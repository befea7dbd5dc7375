#include "program_builder.hpp"

#include <cassert>
#include <optional>

namespace lockstep::cpu {

ProgramBuilder::ProgramBuilder(EngineState& state, StatisticsBlock& statistics,
                               const DroppedBlocks& dropped, const StepGraph& steps,
                               const ProgramOptions& options)
    : GraphBuilder({.graph = graph_of(options, state.graph), .steps = steps, .arena = state.arena},
                   options),
      state_(state),
      statistics_(statistics),
      dropped_(dropped) {}

dnnl::prop_kind ProgramBuilder::forward_kind() const noexcept {
  return training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
}

Shape ProgramBuilder::batch_shape(ValueId value) const {
  return graph().nodes()[at(value)].output.with_batch(batch_size());
}

dnnl::primitive_attr ProgramBuilder::attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Tensor ProgramBuilder::make(const Desc& desc) {
  Tensor tensor{.memory = dnnl::memory(desc, engine(), DNNL_MEMORY_NONE),
                .buffer = lists().make_buffer(desc.get_size())};
  place(tensor);
  return tensor;
}

void ProgramBuilder::place(const Tensor& tensor) {
  placed_.memories.push_back(
      {.memory = tensor.memory, .buffer = tensor.buffer, .offset = tensor.offset});
}

Tensor ProgramBuilder::fixed(const Desc& desc, void* data) const {
  return {.memory = dnnl::memory(desc, engine(), data), .buffer = Tensor::fixed};
}

Tensor ProgramBuilder::view(const Tensor& tensor, const Desc& desc) {
  if (tensor.buffer == Tensor::fixed) {
    return fixed(desc, tensor.memory.get_data_handle());
  }
  return part(tensor, desc, 0);
}

Tensor ProgramBuilder::part(const Tensor& whole, const Desc& desc, std::size_t offset) {
  Tensor result{.memory = dnnl::memory(desc, engine(), DNNL_MEMORY_NONE),
                .buffer = whole.buffer,
                .offset = whole.offset + offset};
  place(result);
  return result;
}

Tensor ProgramBuilder::in_format(const Tensor& tensor, const Desc& desc, const std::string& name) {
  if (tensor.desc() == desc) return tensor;
  if (same_placement(tensor.desc(), desc)) return view(tensor, desc);
  Tensor result = make(desc);
  emit_copy("reorder of " + name, tensor, result);
  return result;
}

Tensor ProgramBuilder::parameter(ParameterId id, const Desc& desc, const std::string& name) {
  return in_format(master(id), desc, name);
}

GradOutput ProgramBuilder::grad_output(const StepOp& op, const Desc& desc,
                                       const std::string& name) {
  const StepValueId left = op.grad_output[0];
  const bool adds = op.grad_output.size() == 2;
  const bool fits = value(left).desc() == desc;
  if (adds && fits) {
    const StepValueId right = op.grad_output[1];
    const Tensor first = value(left);
    const Tensor second = in_format(value(right), desc, name);
    GradOutput result{.first = first, .second = second, .target = {}};
    if (second.buffer != value(right).buffer || overwritable(right)) {
      result.target = second;
    } else if (overwritable(left)) {
      result.target = first;
    }
    return result;
  }
  const Tensor given = adds ? sum(left, op.grad_output[1]) : value(left);
  const Tensor first = in_format(given, desc, name);
  GradOutput result{.first = first, .second = {}, .target = {}};
  if (adds || first.buffer != given.buffer || overwritable(left)) result.target = first;
  return result;
}

Tensor ProgramBuilder::sum(StepValueId left_id, StepValueId right_id) {
  const Tensor left = value(left_id);
  const Tensor right = in_format(value(right_id), left.desc(), "gradient");
  Tensor target = left;
  if (right.buffer != value(right_id).buffer || overwritable(right_id)) {
    target = right;
  } else if (!overwritable(left_id)) {
    target = make(left.desc());
  }
  emit(std::make_unique<AddStep>(
           AddStep::Operands{.left = left.memory, .right = right.memory, .target = target.memory}),
       {left, right, target});
  return target;
}

void ProgramBuilder::list(std::unique_ptr<Step> step, When when) {
  lists().add({.step = std::move(step), .when = when});
}

std::unique_ptr<Step> ProgramBuilder::bound(const std::string& name,
                                            const dnnl::primitive& primitive,
                                            const Desc& scratchpad, const Arguments& arguments) {
  std::vector<PrimitiveStep::Argument> bound_arguments;
  for (const auto& [index, tensor] : arguments) {
    touch(tensor);
    bound_arguments.push_back({.index = index, .memory = tensor.memory});
  }
  if (scratchpad.get_size() != 0) {
    // Live for this step only, so that the plan overlaps all scratchpads.
    const Tensor scratch = make(scratchpad);
    bound_arguments.push_back({.index = DNNL_ARG_SCRATCHPAD, .memory = scratch.memory});
  }
  return std::make_unique<PrimitiveStep>(name, primitive, state_.stream,
                                         std::move(bound_arguments));
}

void ProgramBuilder::emit(const std::string& name, const dnnl::primitive& primitive,
                          const Desc& scratchpad, const Arguments& arguments) {
  list(bound(name, primitive, scratchpad, arguments));
}

void ProgramBuilder::emit(std::unique_ptr<Step> step, const std::vector<Tensor>& touched) {
  for (const Tensor& tensor : touched) touch(tensor);
  list(std::move(step));
}

std::unique_ptr<Step> ProgramBuilder::loop_over(const std::string& name,
                                                const std::vector<Tensor>& tensors,
                                                LoopStep::Loop loop) {
  std::vector<dnnl::memory> memories;
  memories.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    touch(tensor);
    memories.push_back(tensor.memory);
  }
  return std::make_unique<LoopStep>(name, std::move(memories), std::move(loop));
}

void ProgramBuilder::emit_loop(const std::string& name, const std::vector<Tensor>& tensors,
                               LoopStep::Loop loop) {
  list(loop_over(name, tensors, std::move(loop)));
}

void ProgramBuilder::emit_copy(const std::string& name, const Tensor& from, const Tensor& to) {
  emit_reorder(name, from, to, When::always);
}

void ProgramBuilder::emit_reorder(const std::string& name, const Tensor& from, const Tensor& to,
                                  When when) {
  const auto pd = checked(name, [&] {
    return dnnl::reorder::primitive_desc(engine(), from.desc(), engine(), to.desc(), attributes());
  });
  list(bound(name, dnnl::reorder(pd), pd.scratchpad_desc(),
             {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}),
       when);
}

void ProgramBuilder::add_to_arena(const std::string& name, const Tensor& from, ParameterId id) {
  const Tensor arena = arena_gradient(id);
  Tensor addend = from;
  if (from.desc() != arena.desc()) {
    addend = make(arena.desc());
    emit_reorder("reorder of the weight gradient of " + name, from, addend, When::accumulating);
  }
  touch(addend);
  list(std::make_unique<AddStep>(
           AddStep::Operands{.left = arena.memory, .right = addend.memory, .target = arena.memory}),
       When::accumulating);
}

void ProgramBuilder::emit_parameter_gradients(const std::string& name,
                                              const dnnl::primitive& primitive,
                                              const Desc& scratchpad, const Arguments& arguments,
                                              const std::vector<ParameterOutput>& outputs) {
  emit_parameter_gradients(name, outputs, [&](const std::vector<Tensor>& tensors) {
    Arguments all = arguments;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Desc& desc = outputs[i].primitives;
      all.emplace_back(outputs[i].argument,
                       desc.get_size() == 0 ? tensors[i] : view(tensors[i], desc));
    }
    return bound(name, primitive, scratchpad, all);
  });
}

void ProgramBuilder::emit_parameter_gradients(const std::string& name,
                                              const std::vector<ParameterOutput>& outputs,
                                              const MakeGradientStep& make_step) {
  // The overwriting form writes to the arena if formats agree, else to a buffer that is reordered
  // into it; the accumulating form writes to a buffer that is added to the arena. Gradients that
  // the engine does not hold accumulate where they are reduced, so they need only the first form.
  // An output of a frozen parameter is dropped.
  const bool held = state_.arena.holds_gradients();
  const When when = held ? When::overwriting : When::always;
  std::vector<std::optional<Tensor>> targets;  // empty: frozen
  std::vector<Tensor> direct;
  std::vector<Tensor> addends;
  for (const ParameterOutput& output : outputs) {
    targets.emplace_back();
    if (!is_frozen(output.parameter)) targets.back() = arena_gradient(output.parameter);
    const bool fits = targets.back() && targets.back()->desc() == output.desc;
    direct.push_back(fits ? *targets.back() : make(output.desc));
    if (held) addends.push_back(make(output.desc));
  }
  list(make_step(direct), when);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!targets[i] || direct[i].desc() == targets[i]->desc()) continue;
    emit_reorder("reorder of the weight gradient of " + name, direct[i], *targets[i], when);
  }
  if (held) list(make_step(addends), When::accumulating);
  for (std::size_t i = 0; i < addends.size(); ++i) {
    if (targets[i]) add_to_arena(name, addends[i], outputs[i].parameter);
  }
}

void ProgramBuilder::emit_parameter_gradients(const std::string& name,
                                              const std::vector<Tensor>& operands,
                                              const std::vector<ParameterOutput>& outputs,
                                              const LoopStep::Loop& loop) {
  emit_parameter_gradients(name, outputs, [&](const std::vector<Tensor>& targets) {
    std::vector<Tensor> tensors = operands;
    tensors.insert(tensors.end(), targets.begin(), targets.end());
    return loop_over(name, tensors, loop);
  });
}

void ProgramBuilder::emit_parameter_gradients(std::unique_ptr<Step> step,
                                              const std::vector<Tensor>& touched,
                                              const std::vector<BufferedGradient>& outputs) {
  emit(std::move(step), touched);
  for (const BufferedGradient& output : outputs) {
    if (is_frozen(output.parameter)) continue;
    const Tensor arena = arena_gradient(output.parameter);
    const Tensor gradient = fixed(arena.desc(), const_cast<float*>(output.values));  // only read
    const bool held = state_.arena.holds_gradients();
    emit_reorder("gradient of a norm", gradient, arena, held ? When::overwriting : When::always);
    if (held) {
      list(std::make_unique<AddStep>(AddStep::Operands{
               .left = arena.memory, .right = gradient.memory, .target = arena.memory}),
           When::accumulating);
    }
  }
}

PlacedBuffers ProgramBuilder::take_buffers() {
  placed_.plan = lists().plan();
  return std::move(placed_);
}

}  // namespace lockstep::cpu
