#include "device_arena.hpp"

#include "device_memory.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::gpu {
namespace {

bool is_grouped_weight(const Graph& graph, ParameterId id) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    const auto* conv = std::get_if<Conv2d>(&node.op);
    return conv != nullptr && conv->options.groups > 1 && node.parameters[0] == id;
  });
}

/// A weight is (out, in) or (out, in, height, width); other parameters are rows of channels.
ParameterFormat format_of(const Graph& graph, ParameterId id) {
  const Parameter& parameter = graph.parameters()[static_cast<std::size_t>(id)];
  const Shape& shape = parameter.shape;
  const bool is_weight = parameter.kind == ParameterKind::weight;
  const std::int64_t in = is_weight ? shape[1] : shape[shape.rank() - 1];
  const std::int64_t area = shape.rank() == 4 ? shape[2] * shape[3] : 1;
  const std::int64_t out = shape.elements() / in / area;
  const std::int64_t padded_in = is_grouped_weight(graph, id) ? in : padded_channels(in);
  const std::int64_t padded_out = is_weight ? padded_channels(out) : out;
  const auto terms = [](std::int64_t count, std::int64_t stride) {
    std::vector<std::size_t> result;
    for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<std::size_t>(i * stride));
    return result;
  };
  return {
      .size = static_cast<std::size_t>(padded_out * area * padded_in),
      .offsets = {{terms(out, area * padded_in), terms(in, 1), terms(area, padded_in), {0}, {0}}},
  };
}

}  // namespace

ParameterArena make_parameter_arena(const std::shared_ptr<Device>& device, const Graph& graph,
                                    const ParameterArenaOptions& options) {
  std::vector<ParameterFormat> formats;
  for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
    formats.push_back(format_of(graph, static_cast<ParameterId>(id)));
  }
  using Use = ParameterArena::Use;
  return ParameterArena(
      graph,
      {.formats = std::move(formats), .tail_size = options.tail_size, .units = options.units},
      [&](std::size_t count, Use use) {
        return std::make_shared<DeviceArena>(
            device, count,
            use == Use::communication ? MemoryPlace::exchanged : MemoryPlace::device);
      });
}

WorkingParameters::WorkingParameters(DeviceAllocator& device, const ParameterArena& arena,
                                     DataType type)
    : type_(type) {
  if (type_ == DataType::f32 || arena.parameters().empty()) return;
  copy_ = DeviceArray<std::uint16_t>(device, arena.layout().size());
}

void WorkingParameters::refresh(DeviceQueues& device, const ParameterArena& arena) const {
  if (copy_.size() == 0) return;
  convert(device.stream(), arena.parameters().data(), DataType::f32, copy_.data(), type_,
          copy_.size());
}

std::byte* WorkingParameters::of(const ParameterArena& arena, ParameterId id) const {
  if (copy_.size() == 0) return arena.parameter(id);
  return std::as_writable_bytes(copy_.span().subspan(arena.offset_of(id))).data();
}

}  // namespace lockstep::gpu
