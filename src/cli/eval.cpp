#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/train/trainer.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>

namespace lockstep::cli {
namespace {

/// `run` (the training run's precision), then Precision in the same order.
enum class EvalPrecision { run, fp32, tf32, bf16, fp16 };

std::optional<Precision> precision_of(EvalPrecision asked) {
  if (asked == EvalPrecision::run) return std::nullopt;
  return static_cast<Precision>(static_cast<int>(asked) - 1);
}

struct EvalArguments {
  std::string checkpoint;
  std::string data;
  std::string split = "val";
  std::string model;
  std::int64_t width = 0;
  std::int64_t image_size = 0;
  std::vector<double> mean;
  std::vector<double> std;
  EvalPrecision precision = EvalPrecision::run;
  DeviceChoice device = DeviceChoice::automatic;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;
  std::int64_t batch_size = 64;
  std::int64_t threads = 0;
  std::int64_t loader_threads = 1;
  bool json = false;
};

OptionTable<EvalArguments> eval_options() {
  OptionTable<EvalArguments> table;
  table.group("What")
      .add(&EvalArguments::checkpoint,
           {.name = "checkpoint", .help = "checkpoint, or a file with /model alone", .unit = ""})
      .add(&EvalArguments::data, {.name = "data", .help = "directory of shards", .unit = ""})
      .add(&EvalArguments::split, {.name = "split", .help = "which of its splits", .unit = ""})
      .add(&EvalArguments::model,
           {.name = "model", .help = "network; empty: the checkpoint's", .unit = ""})
      .add(&EvalArguments::width,
           {.name = "width", .help = "with --model, as for train", .unit = "", .min = 0})
      .add(&EvalArguments::image_size, {.name = "image-size",
                                        .help = "0: the checkpoint's, else the data set's",
                                        .unit = "pixels",
                                        .min = 0,
                                        .max = 16384})
      .add(&EvalArguments::mean,
           {.name = "mean",
            .help =
                "channel means of pixels in [0, 1]; empty: the checkpoint's, else the data set's",
            .unit = ""})
      .add(&EvalArguments::std, {.name = "std",
                                 .help = "channel standard deviations; empty: as mean",
                                 .unit = "",
                                 .min = 0,
                                 .above_min = true});
  table.group("How")
      .add(&EvalArguments::precision, {.name = "precision",
                                       .help = "what to compute in; run: as the run did",
                                       .unit = "",
                                       .choices = {"run", "fp32", "tf32", "bf16", "fp16"}})
      .add(&EvalArguments::device, {.name = "device",
                                    .help = "what to compute on; auto: a GPU where there is one",
                                    .unit = "",
                                    .choices = {"auto", "cpu", "cuda"}})
      .add(&EvalArguments::conv_algorithm,
           {.name = "conv-algorithm",
            .help = "of the processor's convolutions; run: as the run did",
            .unit = "",
            .choices = {"run", "direct"}})
      .add(&EvalArguments::batch_size,
           {.name = "batch-size", .help = "samples per rank", .unit = "", .min = 1, .max = 1 << 24})
      .add(&EvalArguments::threads, {.name = "threads",
                                     .help = "per rank; 0: the affinity mask's share",
                                     .unit = "",
                                     .min = 0,
                                     .max = 4096})
      .add(&EvalArguments::loader_threads,
           {.name = "loader-threads", .help = "per rank", .unit = "", .min = 0, .max = 1024})
      .add(&EvalArguments::json, {.name = "json", .help = "print one JSON object", .unit = ""});
  return table;
}

EvalArguments parse(const std::vector<std::string>& words) {
  EvalArguments arguments = eval_options().parse(words).value;
  if (arguments.checkpoint.empty() || arguments.data.empty()) {
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
        "lockstep eval --checkpoint FILE --data DIR [options]: loss, top-1 and top-5 over exactly "
        "the "
        "split's samples\n{}",
        eval_options().help());
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const EvalArguments arguments = parse(invocation.arguments);
    const EvaluationResult result =
        evaluate({.checkpoint = arguments.checkpoint,
                  .data = arguments.data,
                  .split = arguments.split,
                  .model = arguments.model,
                  .width = arguments.width,
                  .image_size = arguments.image_size,
                  .mean = arguments.mean,
                  .std = arguments.std,
                  .precision = precision_of(arguments.precision),
                  .device = arguments.device,
                  .conv_algorithm = arguments.conv_algorithm,
                  .batch_size = arguments.batch_size,
                  .loader_threads = arguments.loader_threads},
                 {.comm = job.comm(),
                  .binding = job.bind(static_cast<int>(arguments.threads)),
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
