#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/train/trainer.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>

namespace lockstep::cli {
namespace {

/// The options of train that eval shares: empty or 0 is the checkpoint's.
Config evaluated_config() {
  Config config;
  config.model.clear();
  config.batch_size = 64;
  return config;
}

struct EvalArguments {
  std::string checkpoint;
  std::string split = "val";
  Config config = evaluated_config();
  std::optional<Precision> precision;                       ///< nullopt: the training run's
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;  ///< automatic: the training run's
  bool json = false;
};

OptionTable<EvalArguments> eval_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<EvalArguments> table;
  table.group("What")
      .add(&EvalArguments::checkpoint, {.name = "checkpoint",
                                        .help = "checkpoint, or an HDF5 file with only /model",
                                        .unit = ""})
      .add(&EvalArguments::config, train,
           {{.name = "data", .help = "directory of shards to evaluate on"}})
      .add(&EvalArguments::split,
           {.name = "split", .help = "split of --data to evaluate", .unit = ""})
      .add(&EvalArguments::config, train,
           {{.name = "model", .help = "network; empty: the checkpoint's"},
            {.name = "width", .help = "width of --model, as for train"},
            {.name = "image-size",
             .help = "height and width of the network's input; 0: the checkpoint's, else the data "
                     "set's"},
            {.name = "mean",
             .help = "channel means of pixels in [0, 1], comma-separated; empty: the checkpoint's, "
                     "else the data "
                     "set's"},
            {.name = "std",
             .help = "channel standard deviations, comma-separated; empty: as --mean"}});
  table.group("How")
      .add(&EvalArguments::precision, "run",
           {.name = "precision",
            .help = "data type to compute in; run: that of the training run",
            .unit = "",
            .choices = train.spec("precision").choices})
      .add(&EvalArguments::config, train, {{.name = "device"}})
      .add(&EvalArguments::conv_algorithm,
           {.name = "conv-algorithm",
            .help = "3x3 convolutions on CPUs; run: as in the training run",
            .unit = "",
            .choices = {"run", "direct"}})
      .add(&EvalArguments::config, train,
           {{.name = "batch-size", .help = "samples per rank", .min = 1},
            {.name = "threads"},
            {.name = "loader-threads"}})
      .add(&EvalArguments::json, {.name = "json", .help = "print one JSON object", .unit = ""});
  return table;
}

EvalArguments parse(const std::vector<std::string>& words) {
  EvalArguments arguments = eval_options().parse(words).value;
  if (arguments.checkpoint.empty() || arguments.config.data.empty()) {
    fail(ExitStatus::usage,
         "eval needs --checkpoint and --data ({} missing); see lockstep eval --help",
         arguments.checkpoint.empty() ? "--checkpoint is" : "--data is");
  }
  return arguments;
}

}  // namespace

ExitStatus run_eval(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    fmt::print(
        "usage: lockstep eval --checkpoint FILE --data DIR [options]\n\n"
        "Computes loss, top-1 and top-5 over exactly the samples of a split.\n{}",
        eval_options().help());
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const EvalArguments arguments = parse(invocation.arguments);
    const Config& config = arguments.config;
    const EvaluationResult result =
        evaluate({.checkpoint = arguments.checkpoint,
                  .data = config.data,
                  .split = arguments.split,
                  .model = config.model,
                  .width = config.width,
                  .image_size = config.image_size,
                  .mean = config.mean,
                  .std = config.std,
                  .precision = arguments.precision,
                  .device = config.device,
                  .conv_algorithm = arguments.conv_algorithm,
                  .batch_size = config.batch_size,
                  .loader_threads = config.loader_threads},
                 {.comm = job.comm(),
                  .binding = job.bind(static_cast<int>(config.threads)),
                  .model = {},
                  .warn = [&](const std::string& text) {
                    if (job.is_first()) fmt::print(stderr, "lockstep: warning: {}\n", text);
                  }});
    if (!job.is_first()) return ExitStatus::ok;
    if (arguments.json) {
      const nlohmann::ordered_json json{{"samples", result.samples},
                                        {"loss", result.loss},
                                        {"top1", result.top1},
                                        {"top5", result.top5},
                                        {"seconds", result.seconds}};
      print_json(json);
    } else {
      fmt::print("{} samples: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} %\n", result.samples,
                 result.loss, 100 * result.top1, 100 * result.top5);
    }
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
