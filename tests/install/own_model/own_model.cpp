// A user-defined residual network: own_model train DATA RUN_DIR [options] |
// own_model eval DATA CHECKPOINT
#include <lockstep/lockstep.hpp>

#include <iostream>

using namespace lockstep;

namespace {

ValueId residual_block(Graph& graph, ValueId x, const std::string& name, std::int64_t width) {
  graph.begin_block();
  ValueId y = graph.conv2d(x, {.name = name + ".conv1", .out_channels = width, .padding = 1});
  y = graph.relu(graph.batch_norm(y, {.name = name + ".bn1"}));
  y = graph.conv2d(y, {.name = name + ".conv2", .out_channels = width, .padding = 1});
  y = graph.batch_norm(y, {.name = name + ".bn2", .zero_init_weight = true});
  return graph.relu(graph.add(y, x));
}

Graph own_model(const ModelOptions& options) {
  Graph graph("own-model", options.image, options.classes);
  ValueId x =
      graph.conv2d(graph.input(), {.name = "stem", .out_channels = 16, .stride = 2, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "stem_bn"}));
  for (const char* name : {"block1", "block2"}) x = residual_block(graph, x, name, 16);
  graph.end_blocks();
  x = graph.flatten(graph.global_avg_pool(x));
  x = graph.linear(x, {.name = "fc", .out_features = options.classes});
  add_loss(graph, x, options);
  return graph;
}

ExitStatus run(Job& job, const std::vector<std::string>& args) {
  if (args.at(0) == "eval") {
    const auto result = evaluate({.checkpoint = args.at(2), .data = args.at(1)},
                                 {.comm = job.comm(), .binding = job.bind(0), .model = own_model});
    if (job.comm().rank() == 0) std::cout << "top1 " << result.top1 << '\n';
    return ExitStatus::ok;
  }
  std::vector<std::string> options{"--data", args.at(1), "--run-dir", args.at(2)};
  options.insert(options.end(), args.begin() + 3, args.end());
  return train(parse_train_options(options).config,
               {.comm = job.comm(), .grid = job.grid(), .binding = job.bind(0), .model = own_model})
      .status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  return static_cast<int>(run_job(argc, argv, [&](Job& job) { return run(job, args); }));
}
