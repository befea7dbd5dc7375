#include "conformance/fixtures.hpp"
#include "conformance/harness.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

struct Case {
  Graph graph;
  std::int64_t batch_size = 4;
  Precision precision = Precision::fp32;
  bool synchronised = false;
};

/// Logits, gradients after one backward and after a second one that accumulates, and statistics.
struct Results {
  std::vector<float> logits;
  std::vector<float> once;
  std::vector<float> twice;
  std::vector<float> statistics;
  std::size_t activation_bytes = 0;
};

Results train(const Case& of, Recompute recompute) {
  CpuEngineOptions options{.threads = 2, .precision = of.precision, .recompute = recompute};
  if (of.synchronised) options.sum_over_ranks = [](std::span<double>) {};
  const auto engine = make_cpu_engine(of.graph, options);
  conformance::load(*engine, oracle::random_state(of.graph, 1));
  const conformance::EngineBatch first(*engine, oracle::random_problem(of.graph, of.batch_size, 1));
  const conformance::EngineBatch second(*engine,
                                        oracle::random_problem(of.graph, of.batch_size, 2));
  const auto program = engine->compile_training(of.batch_size);
  const auto gradients = [&] {
    return std::vector<float>(engine->gradients().begin(), engine->gradients().end());
  };
  Results results;
  program->forward(first.batch());
  program->backward({.loss_scale = 1.0F, .accumulate = false});
  results.once = gradients();
  program->forward(second.batch());
  program->backward({.loss_scale = 1.0F, .accumulate = true});
  results.twice = gradients();
  results.logits.assign(program->logits().begin(), program->logits().end());
  const auto statistics = program->batch_statistics();
  results.statistics.assign(statistics.begin(), statistics.end());
  results.activation_bytes = program->activation_bytes();
  return results;
}

Graph model(const std::string& name, std::int64_t size, std::int64_t width = 0) {
  return make_model(name, {.image = {.channels = 3, .height = size, .width = size},
                           .classes = 10,
                           .width = width,
                           .zero_init_residual = false});
}

/// Sums of kept, freed and recomputed values; a norm after a sum; a ReLU without a norm.
Graph mixed_network() {
  Graph graph("mixed", {3, 12, 12});
  const auto convolution = [&](ValueId x, const char* name) {
    return graph.conv2d(x, {.name = name, .out_channels = 20, .kernel = 3, .padding = 1});
  };
  graph.begin_block();
  ValueId x = graph.batch_norm(convolution(graph.input(), "conv1"), {.name = "bn1"});
  ValueId y = convolution(x, "conv2");
  x = graph.relu(graph.add(y, x));  // the convolution's output is overwritten
  graph.begin_block();
  y = graph.batch_norm(convolution(x, "conv3"), {.name = "bn3"});
  x = graph.add(x, y);
  x = graph.relu(graph.batch_norm(x, {.name = "bn4"}));
  y = graph.relu(convolution(x, "conv5"));
  x = graph.add(graph.add(x, y), x);
  graph.begin_block();
  x = graph.max_pool(x, {.kernel = 2, .stride = 2, .padding = 0});
  x = graph.append(Gelu{graph.batch_norm(x, {.name = "bn6"})});
  x = graph.append(Gelu{graph.append(Gelu{convolution(x, "conv7")})});
  x = graph.linear(graph.flatten(graph.batch_norm(x, {.name = "bn8"})),
                   {.name = "fc", .out_features = 10});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

/// `blocks` residual blocks of one size.
Graph chain(int blocks) {
  Graph graph("chain", {16, 8, 8});
  ValueId x = graph.input();
  for (int i = 0; i < blocks; ++i) {
    const std::string name = std::to_string(i);
    graph.begin_block();
    const ValueId y =
        graph.conv2d(x, {.name = "conv" + name, .out_channels = 16, .kernel = 1, .padding = 0});
    x = graph.relu(graph.add(graph.batch_norm(y, {.name = "bn" + name}), x));
  }
  x = graph.linear(graph.flatten(graph.global_avg_pool(x)), {.name = "fc", .out_features = 10});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

/// Norms of plain tensors in blocks, after a pool of the images and after a convolution in groups.
Graph plain_norms() {
  Graph graph("plain", {3, 12, 12});
  graph.begin_block();
  ValueId x = graph.max_pool(graph.input(), {.kernel = 2, .stride = 2, .padding = 0});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  x = graph.conv2d(x, {.name = "conv2", .out_channels = 6, .kernel = 3, .padding = 1, .groups = 3});
  x = graph.relu(graph.batch_norm(x, {.name = "bn2"}));
  x = graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  x = graph.conv2d(x, {.name = "conv3", .out_channels = 5, .kernel = 3, .padding = 1});
  graph.end_blocks();
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 10});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

std::vector<Graph> graphs() {
  return {model("mini-resnet", 32, 16), model("resnet18", 64), model("resnet50", 64),
          model("simple-cnn", 32),      mixed_network(),       chain(24),
          model("mini-vit", 16, 32),    plain_norms(),         model("resnext50_32x4d", 64)};
}

std::vector<Precision> precisions() {
  std::vector<Precision> all{Precision::fp32};
  if (cpu_computes_in(Precision::bf16)) all.push_back(Precision::bf16);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(recomputed_values_have_the_same_bits) {
  for (const Graph& graph : graphs()) {
    for (const Precision precision : precisions()) {
      for (const bool synchronised : {false, true}) {
        const Case of{.graph = graph, .precision = precision, .synchronised = synchronised};

        const Results kept = train(of, Recompute::none);
        for (const Recompute what : {Recompute::norms, Recompute::block}) {
          const Results again = train(of, what);
          BOOST_TEST_CONTEXT(graph.name() << ", " << to_string(precision)
                                          << (synchronised ? ", synchronised" : "")
                                          << (what == Recompute::block ? ", blocks" : "")) {
            BOOST_TEST((again.logits == kept.logits));
            BOOST_TEST((again.once == kept.once));
            BOOST_TEST((again.twice == kept.twice));
            BOOST_TEST((again.statistics == kept.statistics));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(residual_networks_take_less_memory) {
  for (const auto& [name, most] : {std::pair{"resnet18", 0.75}, std::pair{"resnet50", 0.66}}) {
    for (const Precision precision : precisions()) {
      const Case of{.graph = model(name, 224), .batch_size = 8, .precision = precision};
      const auto bytes = [&](Recompute recompute) {
        const auto engine =
            make_cpu_engine(of.graph, {.precision = of.precision, .recompute = recompute});
        return static_cast<double>(engine->compile_training(of.batch_size)->activation_bytes());
      };

      BOOST_TEST(bytes(Recompute::norms) < most * bytes(Recompute::none), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_network_whose_blocks_are_recomputed_keeps_little_but_their_outputs) {
  for (const auto& [name, most] :
       {std::pair{"resnet50", 0.4}, std::pair{"vit_b_16", 0.2}, std::pair{"vit_l_16", 0.15}}) {
    const Graph graph = model(name, 224);
    const auto bytes = [&](Recompute recompute) {
      const auto engine = make_cpu_engine(graph, {.recompute = recompute});
      return static_cast<double>(engine->compile_training(4)->activation_bytes());
    };
    const double share = bytes(Recompute::block) / bytes(Recompute::none);
    BOOST_TEST(share < most, name << ": " << share);
  }
}

BOOST_AUTO_TEST_CASE(a_long_chain_is_not_recomputed_all_at_once) {
  const auto bytes = [](int blocks, Recompute recompute) {
    const auto engine = make_cpu_engine(chain(blocks), {.recompute = recompute});
    return static_cast<double>(engine->compile_training(32)->activation_bytes());
  };

  // Without recomputation a block keeps two values, with it one and a part of the others.
  BOOST_TEST(bytes(64, Recompute::norms) < 0.68 * bytes(64, Recompute::none));
}

BOOST_AUTO_TEST_CASE(inference_recomputes_nothing) {
  const Graph graph = model("resnet18", 64);
  const auto bytes = [&](Recompute recompute) {
    return make_cpu_engine(graph, {.recompute = recompute})
        ->compile_inference(4)
        ->activation_bytes();
  };

  BOOST_TEST(bytes(Recompute::norms) == bytes(Recompute::none));
}
