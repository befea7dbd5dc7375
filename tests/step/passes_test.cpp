#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/step/step_graph.hpp"
#include "lockstep/step/step_text.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace lockstep;

namespace {

Graph empty_network() {
  return Graph("network", {3, 8, 8});
}

ValueId convolution(Graph& graph, ValueId input, const char* name) {
  return graph.conv2d(input, {.name = name, .out_channels = 3, .kernel = 3, .padding = 1});
}

/// conv1 of the images, and bn1.
ValueId first_norm(Graph& graph) {
  return graph.batch_norm(convolution(graph, graph.input(), "conv1"), {.name = "bn1"});
}

void end(Graph& graph, ValueId value) {
  const ValueId flat = graph.flatten(graph.global_avg_pool(value));
  graph.softmax_cross_entropy(graph.linear(flat, {.name = "fc", .out_features = 10}), {});
}

/// conv1, bn1, relu, and a residual block: conv2, bn2, the addition of the ReLU's value, relu.
Graph residual() {
  Graph graph = empty_network();
  const ValueId first = graph.relu(first_norm(graph));
  const ValueId branch = graph.batch_norm(convolution(graph, first, "conv2"), {.name = "bn2"});
  end(graph, graph.relu(graph.add(branch, first)));
  return graph;
}

/// Two norms of two convolutions, added.
Graph two_branches() {
  Graph graph = empty_network();
  const ValueId stem = graph.relu(convolution(graph, graph.input(), "conv1"));
  const ValueId one = graph.batch_norm(convolution(graph, stem, "conv2"), {.name = "bn2"});
  const ValueId other = graph.batch_norm(convolution(graph, stem, "conv3"), {.name = "bn3"});
  end(graph, graph.relu(graph.add(one, other)));
  return graph;
}

std::string forward_of(const Graph& graph, const Fusions& fusions = {}) {
  return step_text(fuse(forward_steps(graph), graph, fusions), graph);
}

StepGraph training(const Graph& graph, const Fusions& fusions = {}) {
  return differentiate(fuse(forward_steps(graph), graph, fusions), graph, fusions);
}

/// The lines from the first one with this text on.
std::string from(const std::string& text, const std::string& line) {
  const std::size_t at = text.find(line);
  return at == std::string::npos ? text : text.substr(at);
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_is_the_network) {
  const Graph graph = two_branches();
  BOOST_TEST(step_text(forward_steps(graph), graph) ==
             "forward conv1: input_0 -> conv1\n"
             "forward relu_2: conv1 -> relu_2\n"
             "forward conv2: relu_2 -> conv2\n"
             "forward bn2: conv2 -> bn2\n"
             "forward conv3: relu_2 -> conv3\n"
             "forward bn3: conv3 -> bn3\n"
             "forward add_7: bn2, bn3 -> add_7\n"
             "forward relu_8: add_7 -> relu_8\n"
             "forward global_avg_pool_9: relu_8 -> global_avg_pool_9\n"
             "forward flatten_10: global_avg_pool_9 -> flatten_10\n"
             "forward fc: flatten_10 -> fc\n"
             "loss softmax_cross_entropy_12: fc -> \n");
}

BOOST_AUTO_TEST_CASE(a_norm_takes_the_addition_and_the_relu_after_it) {
  const std::string text = forward_of(residual());
  BOOST_TEST(text.find("forward conv1: input_0 -> conv1\n"
                       "forward bn1 + relu_3: conv1 -> relu_3\n"
                       "forward conv2: relu_3 -> conv2\n"
                       "forward bn2 + add_6 + relu_7: conv2, relu_3 -> relu_7\n"
                       "forward global_avg_pool_8") == 0U);
}

BOOST_AUTO_TEST_CASE(a_norm_computes_the_norm_that_is_added_to_it) {
  const std::string text = forward_of(two_branches(), {.pairs_norms = true});
  BOOST_TEST(from(text, "forward conv2")
                 .find("forward conv2: relu_2 -> conv2\n"
                       "statistics bn2: conv2 -> bn2\n"
                       "forward conv3: relu_2 -> conv3\n"
                       "forward bn3 + bn2 + add_7 + relu_8: conv3, bn2 -> "
                       "relu_8\n") == 0U);
}

BOOST_AUTO_TEST_CASE(a_value_that_others_read_is_not_fused) {
  Graph graph = empty_network();
  const ValueId norm = first_norm(graph);
  end(graph, graph.add(graph.relu(norm), norm));
  BOOST_TEST(from(forward_of(graph), "forward bn1")
                 .find("forward bn1: conv1 -> bn1\n"
                       "forward relu_3: bn1 -> relu_3\n"
                       "forward add_4: relu_3, bn1 -> add_4\n") == 0U);
}

BOOST_AUTO_TEST_CASE(a_norm_computes_the_pool_that_the_engine_allows) {
  Graph graph = empty_network();
  const ValueId norm = first_norm(graph);
  end(graph, graph.max_pool(graph.relu(norm), {.kernel = 3, .stride = 2, .padding = 1}));
  const std::string fused = "forward bn1 + relu_3 + max_pool_4: conv1 -> max_pool_4\n";
  const auto text = [&](bool (*pools)(const PoolOptions&)) {
    return from(forward_of(graph, {.pools = pools}), "forward bn1");
  };
  BOOST_TEST(text([](const PoolOptions& pool) { return pool.kernel == 3; }).find(fused) == 0U);
  BOOST_TEST(text([](const PoolOptions& pool) {
               return pool.kernel == 2;
             }).find("forward bn1 + relu_3: conv1 -> relu_3\n") == 0U);
}

BOOST_AUTO_TEST_CASE(backward_reads_what_the_derivatives_name) {
  const Graph graph = residual();
  BOOST_TEST(from(step_text(training(graph), graph), "loss") ==
             "loss softmax_cross_entropy_11: fc -> \n"
             "gradient of the loss softmax_cross_entropy_11:  -> d fc\n"
             "weight gradient fc: flatten_9, d fc -> \n"
             "data gradient fc: d fc -> d flatten_9\n"
             "data gradient flatten_9: d flatten_9 -> d global_avg_pool_8\n"
             "data gradient global_avg_pool_8: d global_avg_pool_8 -> d relu_7\n"
             "gradient bn2 + add_6 + relu_7: conv2, saved bn2, d relu_7 -> d conv2, d relu_3\n"
             "weight gradient conv2: relu_3, d conv2 -> \n"
             "data gradient conv2: d conv2 -> d relu_3 (2)\n"
             "gradient bn1 + relu_3: conv1, saved bn1, d relu_3, d relu_3 (2) -> d conv1\n"
             "weight gradient conv1: input_0, d conv1 -> \n");
}

BOOST_AUTO_TEST_CASE(an_addition_passes_its_gradient_on_and_the_reader_adds_or_a_sum_does) {
  Graph graph = empty_network();
  const ValueId stem = convolution(graph, graph.input(), "conv1");
  end(graph, graph.add(graph.relu(stem), stem));
  const auto text = [&](bool adds) {
    return from(step_text(training(graph, {.relu_takes_sums = adds}), graph), "data gradient glo");
  };
  const std::string expected =
      "data gradient global_avg_pool_4: d global_avg_pool_4 -> d add_3\n"
      "data gradient relu_2: relu_2, d add_3 -> d conv1\n"
      "sum of gradients conv1: d add_3, d conv1 -> d conv1 (2)\n"
      "weight gradient conv1: input_0, d conv1 (2) -> \n";
  BOOST_TEST(text(false) == expected);
  BOOST_TEST(text(true) == expected);  // a convolution never adds

  Graph sums = empty_network();
  const ValueId relu = sums.relu(convolution(sums, sums.input(), "conv1"));
  end(sums, sums.add(convolution(sums, relu, "conv2"), relu));
  const auto relu_line = [&](bool adds) {
    const std::string all = step_text(training(sums, {.relu_takes_sums = adds}), sums);
    return all.substr(all.find("data gradient conv2"));
  };
  BOOST_TEST(relu_line(true) ==
             "data gradient conv2: d add_4 -> d relu_2\n"
             "data gradient relu_2: relu_2, d add_4, d relu_2 -> d conv1\n"
             "weight gradient conv1: input_0, d conv1 -> \n");
  BOOST_TEST(relu_line(false) ==
             "data gradient conv2: d add_4 -> d relu_2\n"
             "sum of gradients relu_2: d add_4, d relu_2 -> d relu_2 (2)\n"
             "data gradient relu_2: relu_2, d relu_2 (2) -> d conv1\n"
             "weight gradient conv1: input_0, d conv1 -> \n");
}

BOOST_AUTO_TEST_CASE(backward_ends_where_nothing_is_trained) {
  Graph graph = residual();
  for (const ValueId node : {1, 2}) {
    for (const ParameterId id : graph.nodes()[static_cast<std::size_t>(node)].parameters) {
      graph.set_lr_scale(id, 0);
    }
  }
  const StepGraph steps = training(graph);
  BOOST_TEST(from(step_text(steps, graph), "gradient bn2") ==
             "gradient bn2 + add_6 + relu_7: conv2, saved bn2, d relu_7 -> d conv2\n"
             "weight gradient conv2: relu_3, d conv2 -> \n");
  // Frozen gradients, which are zeros, are complete too.
  BOOST_TEST(steps.ops.back().completes.size() == 4U);
}

BOOST_AUTO_TEST_CASE(every_parameter_is_completed_once_and_in_order) {
  for (const std::string_view name : model_names()) {
    const Graph graph = make_model(name, {.image = {.channels = 3, .height = 224, .width = 224},
                                          .classes = 10,
                                          .width = 48,
                                          .zero_init_residual = false});
    std::vector<ParameterId> completed;
    for (const StepOp& op : training(graph).ops) {
      completed.insert(completed.end(), op.completes.begin(), op.completes.end());
    }
    BOOST_TEST((completed == gradient_order(graph)), name);
  }
}

BOOST_AUTO_TEST_CASE(a_value_is_written_once_and_before_it_is_read) {
  for (const std::string_view name : model_names()) {
    const Graph graph = make_model(name, {.image = {.channels = 3, .height = 224, .width = 224},
                                          .classes = 10,
                                          .width = 48,
                                          .zero_init_residual = false});
    for (const Recompute again : {Recompute::none, Recompute::norms, Recompute::block}) {
      const StepGraph steps = recompute(training(graph, {.relu_takes_sums = true}), graph, again);
      std::vector<int> written(steps.values.size());
      written[static_cast<std::size_t>(graph.input())] = 1;
      for (const StepOp& op : steps.ops) {
        for (const StepValueId id : op.reads()) {
          BOOST_TEST(written[static_cast<std::size_t>(id)] == 1, name << ": value " << id);
        }
        for (const StepValueId id : op.writes()) ++written[static_cast<std::size_t>(id)];
      }
      BOOST_TEST(std::ranges::max(written) == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(backward_computes_norms_again_before_it_reads_them) {
  const Graph graph = residual();
  BOOST_TEST(
      from(step_text(recompute(training(graph), graph, Recompute::norms), graph), "forward bn1") ==
      "forward bn1 + relu_3: conv1 -> relu_3\n"
      "forward conv2: relu_3 -> conv2\n"
      "forward bn2 + add_6 + relu_7: conv2, relu_3 -> relu_7, saved bn2\n"
      "forward global_avg_pool_8: relu_7 -> global_avg_pool_8\n"
      "forward flatten_9: global_avg_pool_8 -> flatten_9\n"
      "forward fc: flatten_9 -> fc\n"
      "loss softmax_cross_entropy_11: fc -> \n"
      "gradient of the loss softmax_cross_entropy_11:  -> d fc\n"
      "weight gradient fc: flatten_9, d fc -> \n"
      "data gradient fc: d fc -> d flatten_9\n"
      "data gradient flatten_9: d flatten_9 -> d global_avg_pool_8\n"
      "data gradient global_avg_pool_8: d global_avg_pool_8 -> d relu_7\n"
      "gradient bn2 + add_6 + relu_7: conv2, saved bn2, d relu_7 -> d conv2, d relu_3\n"
      "recompute bn1 + relu_3: conv1 -> relu_3 (2), saved bn1 (2)\n"
      "weight gradient conv2: relu_3 (2), d conv2 -> \n"
      "data gradient conv2: d conv2 -> d relu_3 (2)\n"
      "gradient bn1 + relu_3: conv1, saved bn1 (2), d relu_3, d relu_3 (2) -> d conv1\n"
      "weight gradient conv1: input_0, d conv1 -> \n");
}

/// conv1 of the images, a block of conv2, a GELU and conv3 around a shortcut, and conv4 after it.
Graph one_block() {
  Graph graph = empty_network();
  const ValueId first = convolution(graph, graph.input(), "conv1");
  graph.begin_block();
  const ValueId inner = graph.append(Gelu{convolution(graph, first, "conv2")});
  const ValueId sum = graph.add(convolution(graph, inner, "conv3"), first);
  graph.end_blocks();
  end(graph, convolution(graph, sum, "conv4"));
  return graph;
}

BOOST_AUTO_TEST_CASE(backward_computes_a_block_again_from_its_input) {
  const Graph graph = one_block();
  const StepGraph steps = recompute(training(graph), graph, Recompute::block);
  BOOST_TEST(from(step_text(steps, graph), "weight gradient conv4") ==
             "weight gradient conv4: add_5, d conv4 -> \n"
             "data gradient conv4: d conv4 -> d add_5\n"
             "recompute conv2: conv1 -> conv2 (2)\n"
             "recompute gelu_3: conv2 (2) -> gelu_3 (2)\n"
             "weight gradient conv3: gelu_3 (2), d add_5 -> \n"
             "data gradient conv3: d add_5 -> d gelu_3\n"
             "data gradient gelu_3: conv2 (2), d gelu_3 -> d conv2\n"
             "weight gradient conv2: conv1, d conv2 -> \n"
             "data gradient conv2: d conv2 -> d conv1\n"
             "sum of gradients conv1: d add_5, d conv1 -> d conv1 (2)\n"
             "weight gradient conv1: input_0, d conv1 (2) -> \n");
}

BOOST_AUTO_TEST_CASE(a_block_that_is_computed_again_gathers_its_unit_before) {
  const Graph graph = one_block();
  // Units: fc and conv4, the block, conv1.
  const StepUnits units{.unit_of = {2, 1, 1, 0, 0, 0},
                        .filled_after = {60, 50, 40, 30, 20, 20},
                        .ends = {30, 50, 60},
                        .stays = {false, false, false},
                        .gathers = true,
                        .reductions_in_flight = 2};
  const StepGraph steps = shard(recompute(training(graph), graph, Recompute::block), graph, units);
  const std::string text = from(step_text(steps, graph), "data gradient conv4");
  BOOST_TEST(text.substr(0, text.find("recompute gelu")) ==
             "data gradient conv4: d conv4 -> d add_5\n"
             "wait for a gather unit 1:  -> \n"
             "recompute conv2: conv1 -> conv2 (2)\n");
}

BOOST_AUTO_TEST_CASE(units_are_gathered_ahead_and_reduced_when_complete) {
  Graph graph = empty_network();
  const ValueId flat = graph.flatten(convolution(graph, graph.input(), "conv1"));
  const ValueId hidden = graph.linear(flat, {.name = "fc1", .out_features = 4});
  graph.softmax_cross_entropy(graph.linear(hidden, {.name = "fc2", .out_features = 10}), {});
  // Parameters: conv1.weight, fc1.weight, fc1.bias, fc2.weight, fc2.bias; backward completes fc2's
  // first. One unit a layer.
  StepUnits units{.unit_of = {2, 1, 1, 0, 0},
                  .filled_after = {60, 50, 50, 10, 10},
                  .ends = {10, 50, 60},
                  .stays = {false, false, false},
                  .gathers = true,
                  .reductions_in_flight = 2};
  BOOST_TEST(step_text(shard(training(graph), graph, units), graph) ==
             "start of a gather unit 2:  -> \n"
             "wait for a gather unit 2:  -> \n"
             "start of a gather unit 1:  -> \n"
             "forward conv1: input_0 -> conv1\n"
             "forward flatten_2: conv1 -> flatten_2\n"
             "wait for a gather unit 1:  -> \n"
             "start of a gather unit 0:  -> \n"
             "forward fc1: flatten_2 -> fc1\n"
             "wait for a gather unit 0:  -> \n"
             "forward fc2: fc1 -> fc2\n"
             "loss softmax_cross_entropy_5: fc2 -> \n"
             "gradient of the loss softmax_cross_entropy_5:  -> d fc2\n"
             "start of a gather unit 1:  -> \n"
             "weight gradient fc2: fc1, d fc2 -> \n"
             "start of a reduction unit 0:  -> \n"
             "data gradient fc2: d fc2 -> d fc1\n"
             "weight gradient fc1: flatten_2, d fc1 -> \n"
             "start of a reduction unit 1:  -> \n"
             "wait for a gather unit 1:  -> \n"
             "data gradient fc1: d fc1 -> d flatten_2\n"
             "data gradient flatten_2: d flatten_2 -> d conv1\n"
             "weight gradient conv1: input_0, d conv1 -> \n"
             "wait for a reduction unit 0:  -> \n"
             "start of a reduction unit 2:  -> \n"
             "wait for a reduction unit 1:  -> \n"
             "wait for a reduction unit 2:  -> \n");
}

BOOST_AUTO_TEST_CASE(units_that_are_held_are_awaited_by_forward_alone) {
  Graph graph = empty_network();
  const ValueId flat = graph.flatten(convolution(graph, graph.input(), "conv1"));
  graph.softmax_cross_entropy(graph.linear(flat, {.name = "fc", .out_features = 10}), {});
  StepUnits units{.unit_of = {1, 0, 0},
                  .filled_after = {60, 10, 10},
                  .ends = {10, 60},
                  .stays = {false, false},
                  .awaits = true,
                  .reductions_in_flight = 2};
  const std::string text = step_text(shard(training(graph), graph, units), graph);
  BOOST_TEST(text.find("wait for a gather unit 1:  -> \n"
                       "forward conv1: input_0 -> conv1\n"
                       "forward flatten_2: conv1 -> flatten_2\n"
                       "wait for a gather unit 0:  -> \n"
                       "forward fc: flatten_2 -> fc\n"
                       "loss softmax_cross_entropy_4: fc -> \n"
                       "gradient of the loss softmax_cross_entropy_4:  -> d fc\n") == 0U);
  BOOST_TEST(from(text, "gradient of").find("gather unit") == std::string::npos);
}

/// The list of these ops.
std::string text_of(std::vector<StepOp> ops) {
  return step_text({.values = {}, .ops = std::move(ops)}, empty_network());
}

BOOST_AUTO_TEST_CASE(gradients_that_are_held_are_reduced_in_buckets_in_the_last_micro_step) {
  Graph graph = empty_network();
  const ValueId conv = convolution(graph, graph.input(), "conv1");
  end(graph, conv);
  const StepUnits buckets{.filled_after = {100, 90, 40}, .ends = {50, 100}};
  const StepGraph steps = shard(training(graph), graph, buckets);
  BOOST_TEST(from(step_text(steps, graph), "gradient of the loss") ==
             "gradient of the loss softmax_cross_entropy_5:  -> d fc\n"
             "weight gradient fc: flatten_3, d fc -> \n"
             "start of a reduction unit 0:  -> \n"
             "data gradient fc: d fc -> d flatten_3\n"
             "data gradient flatten_3: d flatten_3 -> d global_avg_pool_2\n"
             "data gradient global_avg_pool_2: d global_avg_pool_2 -> d conv1\n"
             "weight gradient conv1: input_0, d conv1 -> \n"
             "start of a reduction unit 1:  -> \n");
  for (const StepOp& op : steps.ops) BOOST_TEST(op.in_last_micro_step == op.is_collective());
}

BOOST_AUTO_TEST_CASE(each_unit_is_updated_as_its_reduction_ends) {
  BOOST_TEST(
      text_of(end_of_step({.units = 3, .tail_joins_last = true, .awaits_reductions = true})) ==
      "start of a reduction tail:  -> \n"
      "wait for a reduction unit 0:  -> \n"
      "update unit 0:  -> \n"
      "wait for a reduction unit 1:  -> \n"
      "update unit 1:  -> \n"
      "wait for a reduction tail:  -> \n"
      "update unit 2:  -> \n");
  // Gradients that are not held have been awaited, and each rank has updated a part of each unit.
  BOOST_TEST(text_of(end_of_step({.units = 2, .gathers = true})) ==
             "start of a reduction tail:  -> \n"
             "update unit 0:  -> \n"
             "update unit 1:  -> \n"
             "wait for a reduction tail:  -> \n"
             "start of a gather unit 1:  -> \n"
             "start of a gather unit 0:  -> \n");
}

BOOST_AUTO_TEST_CASE(sums_of_a_shard_group_are_summed_over_the_replicas_once_a_step) {
  Graph graph = empty_network();
  end(graph, convolution(graph, graph.input(), "conv1"));
  const StepUnits units{.filled_after = {100, 90, 40},
                        .ends = {50, 100},
                        .reductions_in_flight = 1,
                        .has_replicas = true};
  const StepGraph steps = shard(training(graph), graph, units);
  BOOST_TEST(from(step_text(steps, graph), "weight gradient conv1") ==
             "weight gradient conv1: input_0, d conv1 -> \n"
             "wait for a reduction unit 0:  -> \n"
             "start of a reduction over replicas unit 0:  -> \n"
             "start of a reduction unit 1:  -> \n"
             "wait for a reduction unit 1:  -> \n"
             "start of a reduction over replicas unit 1:  -> \n");
  for (const StepOp& op : steps.ops) {
    BOOST_TEST(op.in_last_micro_step == (op.kind == StepOp::Kind::start_replica_reduction));
  }
  BOOST_TEST(text_of(end_of_step({.units = 2, .has_replicas = true})) ==
             "start of a reduction tail:  -> \n"
             "wait for a reduction over replicas unit 0:  -> \n"
             "update unit 0:  -> \n"
             "wait for a reduction over replicas unit 1:  -> \n"
             "update unit 1:  -> \n"
             "wait for a reduction tail:  -> \n");
}

BOOST_AUTO_TEST_CASE(an_update_that_depends_on_all_gradients_follows_a_decision) {
  BOOST_TEST(text_of(end_of_step(
                 {.units = 2, .awaits_reductions = true, .has_replicas = true, .clips = true})) ==
             "start of a reduction tail:  -> \n"
             "wait for a reduction unit 0:  -> \n"
             "start of a reduction over replicas unit 0:  -> \n"
             "wait for a reduction unit 1:  -> \n"
             "start of a reduction over replicas unit 1:  -> \n"
             "wait for a reduction over replicas unit 0:  -> \n"
             "wait for a reduction over replicas unit 1:  -> \n"
             "wait for a reduction tail:  -> \n"
             "decision on the update all:  -> \n"
             "update all:  -> \n");
  BOOST_TEST(
      text_of(end_of_step(
          {.units = 2, .tail_joins_last = true, .awaits_reductions = true, .accumulates = true})) ==
      "start of a reduction tail:  -> \n"
      "wait for a reduction unit 0:  -> \n"
      "wait for a reduction tail:  -> \n"
      "decision on the update all:  -> \n"
      "update all:  -> \n");
}

BOOST_AUTO_TEST_CASE(an_incomplete_network_is_refused) {
  const Graph graph = empty_network();
  BOOST_CHECK_EXCEPTION(static_cast<void>(forward_steps(graph)), Error, [](const Error& error) {
    return std::string(error.what()).find("does not end in a loss") != std::string::npos;
  });
}
