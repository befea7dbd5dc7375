#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/run/metric_text.hpp"
#include "lockstep/train/trainer.hpp"
#include "model_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

struct EvalArguments : EvaluationRequest {
  std::int64_t threads = 0;
  bool json = false;
};

OptionSpec as_for_train(const char* name, const std::string& help = {},
                        std::optional<double> min = {}) {
  return train_options().shared_spec({.name = name, .help = help, .min = min});
}

// NOLINTNEXTLINE(readability-function-size): a table
OptionTable<EvalArguments> eval_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<EvalArguments> table;
  table.group("What")
      .add(&EvalArguments::checkpoint, "checkpoint", "checkpoint, or an HDF5 file with only /model")
      .add(&EvalArguments::data, as_for_train("data", "directory of shards to evaluate on"))
      .add(&EvalArguments::split, "split", "split of --data to evaluate")
      .add(&EvalArguments::ema, "auto",
           {.name = "ema",
            .help = "evaluate the average of the weights, /ema; auto: if the file has one"})
      .add(&EvalArguments::model, as_for_train("model", "network; empty: the checkpoint's"))
      .add(&EvalArguments::width, as_for_train("width", "width of --model, as for train"))
      .add(&EvalArguments::stem, as_for_train("stem", "stem of --model, as for train"))
      .add(&EvalArguments::shortcut, as_for_train("shortcut", "shortcuts of --model, as for train"))
      .add(&EvalArguments::image_size,
           as_for_train("image-size",
                        "height and width of the network's input; 0: that of the training run's "
                        "evaluations, else the data set's"))
      .add(&EvalArguments::mean, as_for_train("mean",
                                              "channel means of pixels in [0, 1], comma-separated; "
                                              "empty: the checkpoint's, else the data set's"))
      .add(&EvalArguments::std,
           as_for_train("std", "channel standard deviations, comma-separated; empty: as --mean"));
  table
      .add(&EvalArguments::eval_crop_ratio, "eval-crop-ratio",
           "as for train; 0: that of the training run", {.min = 0, .max = 1})
      .add(&EvalArguments::eval_resize, "eval-resize", "as for train; 0: that of the training run",
           {.unit = "pixels", .min = 0, .max = train.spec("eval-resize").max})
      .add(&EvalArguments::eval_interpolation, "run",
           {.name = "eval-interpolation",
            .help = "as for train; run: that of the training run",
            .choices = train.spec("eval-interpolation").choices});
  table.group("How")
      .add(&EvalArguments::precision, "run",
           {.name = "precision",
            .help = "data type to compute in; run: that of the training run",
            .choices = train.spec("precision").choices})
      .add(&EvalArguments::device, as_for_train("device"))
      .add(&EvalArguments::decode, as_for_train("decode"))
      .add(&EvalArguments::conv_algorithm, "conv-algorithm",
           "3x3 convolutions on CPUs; run: as in the training run", {.choices = {"run", "direct"}})
      .add(&EvalArguments::batch_size, as_for_train("batch-size", "samples per rank", 1))
      .add(&EvalArguments::threads, as_for_train("threads"))
      .add(&EvalArguments::loader_threads, as_for_train("loader-threads"));
  table.group("Result")
      .add(&EvalArguments::per_class, "per-class", "print samples and top-1 of each class")
      .add(&EvalArguments::confusion, "confusion",
           "CSV file for the confusion matrix: a row for each "
           "true class, a column for each predicted class")
      .add(&EvalArguments::predictions, "predictions",
           "HDF5 file for the logits and label of every sample")
      .add(&EvalArguments::overwrite, "overwrite", "replace --confusion and --predictions")
      .add(&EvalArguments::json, "json", "print one JSON object");
  return table;
}

EvalArguments parse(const std::vector<std::string>& words) {
  auto parsed = eval_options().parse(words);
  require_model_of_options(eval_options(), parsed, parsed.value.model);
  EvalArguments arguments = std::move(parsed.value);
  if (arguments.checkpoint.empty() || arguments.data.empty()) {
    fail(ExitStatus::usage,
         "eval needs --checkpoint and --data ({} missing); see lockstep eval --help",
         arguments.checkpoint.empty() ? "--checkpoint is" : "--data is");
  }
  return arguments;
}

/// `of.samples` > 0.
double fraction(const ClassResult& of) {
  return static_cast<double>(of.top1) / static_cast<double>(of.samples);
}

Json to_json(const std::vector<ClassResult>& classes) {
  Json array = Json::array();
  for (const ClassResult& of : classes) {
    Json object{{"label", array.size()}};
    if (!of.name.empty()) object["name"] = of.name;
    object["samples"] = of.samples;
    object["top1"] = nullptr;
    if (of.samples > 0) object["top1"] = fraction(of);
    array.push_back(std::move(object));
  }
  return array;
}

void print_classes(const std::vector<ClassResult>& classes) {
  std::vector<std::string> names;
  std::size_t width = 0;  // of the names and two spaces
  for (const ClassResult& of : classes) {
    names.push_back(escape_line(of.name));
    if (!of.name.empty()) width = std::max(width, names.back().size() + 2);
  }
  print_out("\n{:>5}  {:<{}}{:>7}  {:>8}\n", "class", "", width, "samples", "top-1");
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const ClassResult& of = classes[label];
    print_out("{:>5}  {:<{}}{:>7}  {:>8}\n", label, names[label], width, of.samples,
              of.samples == 0 ? std::string("-") : fmt::format("{:.2f} %", 100 * fraction(of)));
  }
}

/// `input`: how images were made.
void print_result(const EvaluationResult& result, const EvalArguments& arguments,
                  const std::string& input) {
  if (arguments.json) {
    Json json{{"images", input}, {"samples", result.samples}, {"loss", result.loss}};
    add_metrics(json, result.metrics);
    json["seconds"] = result.seconds;
    json["weights"] = result.ema ? "ema" : "current";
    if (arguments.per_class) json["classes"] = to_json(result.classes);
    print_json(json);
    return;
  }
  if (!result.weights_text.empty()) print_out("weights: {}\n", result.weights_text);
  print_out("{} samples: loss {:.4f}, {}\n", result.samples, result.loss,
            percent_text(result.metrics));
  if (arguments.per_class) print_classes(result.classes);
}

}  // namespace

ExitStatus run_eval(Invocation& invocation) {
  if (prints_help(invocation, eval_options(),
                  "usage: lockstep eval --checkpoint FILE --data DIR [options]\n\n"
                  "Computes the loss and metrics over exactly the samples of a split.\n")) {
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const EvalArguments arguments = parse(invocation.arguments);
    std::string input;
    const EvaluationResult result =
        evaluate(arguments, {.comm = job.comm(),
                             .binding = job.bind(static_cast<int>(arguments.threads)),
                             .warn =
                                 [&](const std::string& text) {
                                   if (job.is_first()) print_warning(text);
                                 },
                             .say =
                                 [&](const std::string& text) {
                                   input = text;
                                   if (job.is_first() && !arguments.json) {
                                     print_out("input: {}\n", input);
                                   }
                                 }});
    if (job.is_first()) print_result(result, arguments, input);
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
