#include "lockstep/checkpointing/model_state.hpp"

#include "checkpoint/example_checkpoint.hpp"

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The name of the last linear layer is the beginning of another layer's name.
Graph network(std::int64_t classes) {
  Graph graph("own", {3, 4, 4});
  ValueId x = graph.batch_norm(graph.input(), {.name = "head.norm"});
  x = graph.linear(graph.flatten(graph.global_avg_pool(x)),
                   {.name = "head", .out_features = classes});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

Checkpoint checkpoint_of(const Graph& graph) {
  Checkpoint checkpoint = example_checkpoint();
  checkpoint.model.clear();
  checkpoint.ema.clear();
  checkpoint.optimizer.clear();
  for (const Parameter& parameter : graph.parameters()) {
    checkpoint.model.push_back(tensor_of(parameter.name, parameter.shape, 1));
  }
  for (const RunningStatistic& statistic : graph.statistics()) {
    checkpoint.model.push_back(tensor_of(statistic.name, {statistic.channels}, 2));
  }
  return checkpoint;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_new_head_is_the_last_linear_layer_alone) {
  const TemporaryDirectory directory;
  const Graph stored = network(10);
  const Checkpoint checkpoint = checkpoint_of(stored);
  write_checkpoint(directory / "a.h5", checkpoint);
  const CheckpointReader reader(directory / "a.h5", CheckpointUse::weights);
  const Graph graph = network(4);

  const TensorValues values = stored_parameters(
      reader, graph,
      {.head = InitHead::fresh, .otherwise = [](ParameterId) { return std::vector<float>{-1}; }});

  for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
    const std::string& name = graph.parameters()[id].name;
    const bool is_head = name == "head.weight" || name == "head.bias";
    const std::vector<float> expected =
        is_head ? std::vector<float>{-1} : checkpoint.model[id].values;
    BOOST_TEST(values(static_cast<ParameterId>(id)) == expected, name);
  }
  BOOST_CHECK_EXCEPTION(static_cast<void>(stored_parameters(reader, graph)), Error,
                        with(ExitStatus::bad_input, {"head.weight"}));
}

BOOST_AUTO_TEST_CASE(a_mean_may_be_negative_but_not_a_variance) {
  const TemporaryDirectory directory;
  const Graph graph = network(4);
  Checkpoint checkpoint = checkpoint_of(graph);
  const std::size_t mean = graph.parameters().size();

  checkpoint.model[mean].values[1] = -3;
  write_checkpoint(directory / "mean.h5", checkpoint);
  const CheckpointReader reader(directory / "mean.h5", CheckpointUse::weights);
  BOOST_TEST(stored_statistics(reader, graph)[0] == checkpoint.model[mean].values);

  checkpoint.model[mean + 1].values[2] = -3;
  write_checkpoint(directory / "variance.h5", checkpoint);
  const CheckpointReader negative(directory / "variance.h5", CheckpointUse::weights);
  BOOST_CHECK_EXCEPTION(static_cast<void>(stored_statistics(negative, graph)), Error,
                        with(ExitStatus::bad_input, {"head.norm.running_var", "-3", "variance"}));
}
