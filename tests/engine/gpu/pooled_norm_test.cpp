#include "../../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "engine/gpu/norms_of_ranks.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/engine/engine.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// A convolution, a norm with a ReLU, and a max pool with two consumers.
struct PooledGraph {
  PoolOptions pool = {.kernel = 3, .stride = 2, .padding = 1};
  bool identity = false;        ///< between the ReLU and the pool
  bool two_consumers = false;   ///< of the ReLU
  bool norm_is_read = false;    ///< by a pool beside the ReLU
  double drop_probability = 0;  ///< of the norm
  bool frozen = false;          ///< the convolution before the norm and the norm's weight

  [[nodiscard]] Graph make() const {
    Graph graph("pool", {3, 9, 10});
    ValueId x = graph.conv2d(graph.input(),
                             {.name = "conv1", .out_channels = 12, .kernel = 3, .padding = 1});
    const StochasticDepth drop{.probability = drop_probability, .block = 1};
    const ValueId norm = graph.batch_norm(x, {.name = "bn1", .drop = drop});
    const ValueId relu = graph.relu(norm);
    x = identity ? graph.max_pool(relu, {.kernel = 1, .stride = 1, .padding = 0}) : relu;
    const ValueId pooled = graph.max_pool(x, pool);
    x = graph.conv2d(pooled, {.name = "conv2", .out_channels = 12, .kernel = 3, .padding = 1});
    x = graph.add(graph.batch_norm(x, {.name = "bn2"}), pooled);
    if (two_consumers) x = graph.add(x, graph.max_pool(relu, pool));
    if (norm_is_read) x = graph.add(x, graph.max_pool(norm, pool));
    x = graph.flatten(graph.global_avg_pool(graph.relu(x)));
    graph.softmax_cross_entropy(graph.linear(x, {.name = "fc", .out_features = 5}), {});
    for (std::size_t id = 0; frozen && id < graph.parameters().size(); ++id) {
      const std::string& name = graph.parameters()[id].name;
      if (name == "conv1.weight" || name == "bn1.weight") {
        graph.set_lr_scale(static_cast<ParameterId>(id), 0);
      }
    }
    return graph;
  }
};

std::unique_ptr<Engine> make_engine(const Graph& graph, DeviceEngineOptions options) {
  return make_device_engine(make_host_device(HostWork::late, HostMemoryGuard::on), graph, options);
}

struct Images {
  Images() : values(size * 3 * 9 * 10), labels(size), dropped(size) {
    std::ranges::generate(values.span(), [this] { return next(); });
    // A constant image, of which many values are equal.
    std::ranges::fill(values.span().first(values.size() / size), 0.25F);
    for (std::size_t i = 0; i < size; ++i) labels.data()[i] = static_cast<std::int32_t>(i);
    std::ranges::fill(dropped.span(), std::uint64_t{0});
  }
  [[nodiscard]] float next() { return static_cast<float>(random.next_normal()); }
  [[nodiscard]] Batch batch() const {
    return {.values = values.data(),
            .targets = {.labels = labels.data()},
            .size = size,
            .pixels = {},
            .dropped = {.masks = dropped.data()}};
  }
  static constexpr std::size_t size = 4;
  PhiloxStream random{3, RandomPurpose::synthetic_data, 0, 0};
  AlignedBuffer<float> values;
  AlignedBuffer<std::int32_t> labels;
  AlignedBuffer<std::uint64_t> dropped;
};

/// Losses, gradients and statistics of three steps of gradient descent, of two accumulated
/// micro-batches each, and an evaluation's logits.
std::vector<float> trained(const Graph& graph, const DeviceEngineOptions& options) {
  Images images;
  const auto engine = make_engine(graph, options);
  std::vector<float> parameters(engine->parameters().size());
  for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
    const Parameter& parameter = graph.parameters()[id];
    const float center = parameter.initialization == Initialization::ones ? 1.0F : 0.0F;
    std::vector<float> plain(static_cast<std::size_t>(parameter.shape.elements()));
    for (float& value : plain) value = center + 0.3F * images.next();
    const auto place = static_cast<ParameterId>(id);
    engine->from_plain(plain, place, engine->layout().view_of(place).in(std::span(parameters)));
  }
  std::vector<float> result;
  const auto keep = [&result](const auto& values) {
    result.insert(result.end(), values.begin(), values.end());
  };
  const auto program = engine->compile_training(Images::size);
  std::vector<float> gradients(parameters.size());
  for (int step = 0; step < 3; ++step) {
    engine->memory().write(parameters, engine->parameters());
    for (const bool accumulate : {false, true}) {
      program->forward(images.batch());
      result.push_back(static_cast<float>(program->metrics().loss));
      program->backward({.loss_scale = 0.125F, .accumulate = accumulate});
    }
    engine->memory().read(engine->gradients().first(gradients.size()), gradients);
    keep(gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i) parameters[i] -= 0.1F * gradients[i];
  }
  keep(program->batch_statistics());
  const auto evaluation = engine->compile_inference(Images::size);
  evaluation->forward(images.batch());
  keep(evaluation->logits());
  return result;
}

/// How many steps have a name.
std::ptrdiff_t count(const PooledGraph& graph, std::string_view name) {
  const auto engine = make_engine(graph.make(), {});
  return std::ranges::count(engine->compile_training(Images::size)->time_steps(Images().batch()),
                            name, &StepTime::name);
}
constexpr std::string_view fused = "batch norm bn1 with max pool";

}  // namespace

BOOST_AUTO_TEST_CASE(a_fused_pool_gives_the_bits_of_separate_steps) {
  for (const bool frozen : {false, true}) {
    // The identity prevents the fusion.
    const PooledGraph together{.frozen = frozen};
    const PooledGraph separate{.identity = true, .frozen = frozen};
    BOOST_TEST(count(together, fused) == 1);
    BOOST_TEST(count(together, "max pool") == 0);
    BOOST_TEST(count(separate, "max pool") == 2);
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      BOOST_TEST_CONTEXT(to_string(precision) << (frozen ? ", frozen" : "")) {
        NormsOfEqualRanks norms;
        for (const bool synchronised : {false, true}) {
          const DeviceEngineOptions options{.precision = precision,
                                            .norms = synchronised ? &norms : nullptr};
          BOOST_TEST((trained(together.make(), options) == trained(separate.make(), options)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_pool_is_a_separate_step_if_it_must_be) {
  for (const PooledGraph& graph :
       {PooledGraph{.pool = {.kernel = 2, .stride = 2, .padding = 0}},
        PooledGraph{.pool = {.kernel = 3, .stride = 2, .padding = 0}},
        PooledGraph{.pool = {.kernel = 3, .stride = 1, .padding = 1}},
        PooledGraph{.two_consumers = true}, PooledGraph{.norm_is_read = true},
        PooledGraph{.drop_probability = 0.25}}) {
    BOOST_TEST(count(graph, fused) == 0);
  }
}
