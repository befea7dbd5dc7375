#include "command.hpp"
#include "export_checkpoint.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/export/fold_batch_norms.hpp"
#include "lockstep/export/formats.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/run/progress.hpp"
#include "model_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace lockstep::cli {
namespace {

enum class ExportFormat { torchvision, safetensors, onnx };

/// The options of train that describe the network: empty or 0 is the checkpoint's.
Config exported_config() {
  Config config;
  config.model.clear();
  return config;
}

struct ExportArguments {
  std::string checkpoint;
  std::optional<bool> ema;  ///< nullopt: if the file has an average
  ExportFormat format = ExportFormat::torchvision;
  std::string output;
  bool overwrite = false;
  bool fold_batch_norm = false;
  bool include_normalization = false;
  Config config = exported_config();
  bool json = false;
};

OptionTable<ExportArguments> export_options() {
  OptionTable<ExportArguments> table;
  table.group("File")
      .add(&ExportArguments::format, "format",
           "torchvision: a state dict for torch.load; safetensors: the same tensors; "
           "onnx: the network up to its logits, opset 17",
           {.choices = {"torchvision", "safetensors", "onnx"}})
      .add(&ExportArguments::ema, "auto",
           {.name = "ema",
            .help = "export the average of the weights, /ema; auto: if the file has one"})
      .add(&ExportArguments::output, "output", "file to write")
      .add(&ExportArguments::overwrite, "overwrite", "replace --output if it exists");
  table.group("For --format onnx")
      .add(&ExportArguments::fold_batch_norm, "fold-batch-norm",
           "make batch norms part of the convolutions before them")
      .add(&ExportArguments::include_normalization, "include-normalization",
           "the input is pixels from 0 to 255, as floats; without it, (pixel / 255 - "
           "mean) / std");
  table.group("Network").add(
      &ExportArguments::config, train_options(),
      {{.name = "model", .help = "network; empty: the checkpoint's"},
       {.name = "width", .help = "width of --model, as for train"},
       {.name = "stem", .help = "stem of --model, as for train"},
       {.name = "shortcut", .help = "shortcuts of --model, as for train"},
       {.name = "image-size",
        .help =
            "height and width of the network's input; 0: that of the training run's evaluations"},
       {.name = "channels", .help = "image channels; 0: the checkpoint's, else 3"},
       {.name = "mean",
        .help = "channel means of pixels in [0, 1], comma-separated; empty: the checkpoint's"},
       {.name = "std", .help = "channel standard deviations, comma-separated; empty: as --mean"}});
  table.group("Result").add(&ExportArguments::json, "json", "print one JSON object");
  return table;
}

ExportArguments parse(const std::vector<std::string>& words) {
  auto parsed = export_options().parse(words, /*allow_positional=*/true);
  ExportArguments& arguments = parsed.value;
  arguments.checkpoint = only_argument(parsed.positional, "export", "checkpoint");
  for (const char* name : {"format", "output"}) {
    if (!parsed.given.contains(name)) {
      fail(ExitStatus::usage,
           "--{} is missing (export needs --format and --output); see lockstep export --help",
           name);
    }
  }
  if (arguments.format != ExportFormat::onnx) {
    for (const auto& [name, given, why] :
         {std::tuple{"fold-batch-norm", arguments.fold_batch_norm,
                     "the modules that load its tensors have batch norms"},
          std::tuple{"include-normalization", arguments.include_normalization,
                     "it holds tensors, not what is computed with them"}}) {
      if (!given) continue;
      fail(ExitStatus::usage, "--{} with --format {} ({}); drop it, or use --format onnx", name,
           export_options().get(arguments, "format"), why);
    }
  }
  require_model_of_options(export_options(), parsed, arguments.config.model);
  return std::move(parsed.value);
}

/// Error as require_output(), and Error(usage) rather than a lost checkpoint.
void check_output(const ExportArguments& arguments) {
  for (const std::string& path :
       {arguments.checkpoint, follow_file_link(arguments.checkpoint).text()}) {
    require_other_than("--output", arguments.output, "the checkpoint", path);
  }
  require_output("--output", arguments.output,
                 arguments.overwrite ? Existing::replace : Existing::refuse);
}

FileParts encode(const TrainedModel& model, const ExportArguments& arguments) {
  switch (arguments.format) {
    case ExportFormat::torchvision:
      return torch_file(model);
    case ExportFormat::safetensors:
      return safetensors_file(model);
    case ExportFormat::onnx:
      break;
  }
  return onnx_file(model,
                   arguments.include_normalization ? OnnxInput::pixels : OnnxInput::normalized);
}

constexpr std::array<std::string_view, 4> unknown_to_torchvision{"mini-resnet", "mini-vit",
                                                                 "simple-cnn", "mlp"};

/// Why no module of torchvision.models has the network's tensors. Empty: the function there with
/// the graph's name makes one, with num_classes = graph.outputs().
std::string torchvision_misfit(const Graph& graph) {
  const std::string& name = graph.name();
  if (!is_built_in(name) || std::ranges::count(unknown_to_torchvision, name) > 0) {
    return fmt::format("torchvision has no {}", name);
  }
  // The default options give torchvision's. Running statistics have their parameters' shapes.
  const Graph there = make_model(name, {.classes = graph.outputs()});
  for (const Parameter& parameter : graph.parameters()) {
    const auto same = std::ranges::find(there.parameters(), parameter.name, &Parameter::name);
    if (same == there.parameters().end()) return fmt::format("{} has no {}", name, parameter.name);
    if (same->shape == parameter.shape) continue;
    return fmt::format("{} is {}, that of {} {}", parameter.name, to_string(parameter.shape), name,
                       to_string(same->shape));
  }
  if (graph.parameters().size() == there.parameters().size()) return {};
  return fmt::format("{} has {} parameters, it {}", name, there.parameters().size(),
                     graph.parameters().size());
}

struct Exported {
  StoredTrainedModel stored;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::string misfit = {};  ///< torchvision_misfit()
};

Exported export_model(const ExportArguments& arguments) {
  check_output(arguments);
  Exported exported{.stored =
                        read_trained_model(arguments.checkpoint, arguments.config, arguments.ema)};
  TrainedModel& model = exported.stored.model;
  exported.parameters = model.graph.parameter_count();
  exported.misfit = torchvision_misfit(model.graph);
  if (arguments.fold_batch_norm) model = fold_batch_norms(model);
  const FileParts parts = encode(model, arguments);
  for (const FilePart& part : parts) exported.bytes += part.size();
  write_parts_atomically(arguments.output, parts);
  return exported;
}

std::string module_of(const Exported& exported) {
  return fmt::format("torchvision.models.{}(num_classes={})", exported.stored.model.graph.name(),
                     exported.stored.model.graph.outputs());
}

Json to_json(const Exported& exported, const ExportArguments& arguments) {
  const TrainedModel& model = exported.stored.model;
  const auto values = [](const std::vector<float>& of) {
    return of.empty() ? Json(nullptr)
                      : require_json(value_list(of), "a list of values", "this is a bug");
  };
  Json json{
      {"path", arguments.output},
      {"format", export_options().get(arguments, "format")},
      {"model", model.graph.name()},
      {"classes", model.graph.outputs()},
      {"parameters", exported.parameters},
      {"bytes", exported.bytes},
      {"weights", model.weights},
      {"input", model.graph.input_shape().extents()},
      {"mean", values(model.mean)},
      {"std", values(model.std)},
      {"resize", model.resize ? Json(*model.resize) : Json(nullptr)},
      {"interpolation", model.interpolation.empty() ? Json(nullptr) : Json(model.interpolation)}};
  if (arguments.format != ExportFormat::onnx) {
    json["module"] = exported.misfit.empty() ? Json(module_of(exported)) : Json(nullptr);
  }
  return json;
}

/// What the exported network computes with, in the names of torchvision.transforms.
void print_input(const TrainedModel& model, const ExportArguments& arguments) {
  const std::string size = "input: " + to_string(model.graph.input_shape());
  if (arguments.include_normalization) {
    print_out("{}, pixels from 0 to 255\n", size);
  } else if (model.mean.empty() || model.std.empty()) {
    print_out("{}, normalised with a mean and std that the checkpoint does not name\n", size);
  } else {
    print_out("{}, ToTensor(), Normalize(mean={}, std={})\n", size, value_list(model.mean),
              value_list(model.std));
  }
  if (!model.resize) return;
  const ImageShape image = image_shape(model.graph.input_shape());
  print_out("JPEG images, as in evaluations: Resize({}), {}, CenterCrop({})\n", *model.resize,
            model.interpolation,
            image.height == image.width ? std::to_string(image.height)
                                        : fmt::format("({}, {})", image.height, image.width));
}

void print_result(const Exported& exported, const ExportArguments& arguments) {
  if (!exported.stored.warning.empty()) print_warning(exported.stored.warning);
  if (arguments.format == ExportFormat::torchvision && !exported.misfit.empty()) {
    print_warning(
        fmt::format("no module of torchvision.models loads {} ({}); build a module with its "
                    "layers, or use --format onnx",
                    arguments.output, exported.misfit));
  }
  if (arguments.json) {
    print_json(to_json(exported, arguments));
    return;
  }
  const TrainedModel& model = exported.stored.model;
  print_out("{}: {} of {} classes, {} parameters, {} ({})\n", arguments.output, model.graph.name(),
            model.graph.outputs(), exported.parameters,
            size_text(static_cast<double>(exported.bytes)),
            export_options().get(arguments, "format"));
  if (!exported.stored.weights_text.empty())
    print_out("weights: {}\n", exported.stored.weights_text);
  if (arguments.format != ExportFormat::onnx && exported.misfit.empty()) {
    print_out("loads into: {}\n", module_of(exported));
  }
  print_input(model, arguments);
}

}  // namespace

ExitStatus run_export(Invocation& invocation) {
  if (prints_help(
          invocation, export_options(),
          "usage: lockstep export CHECKPOINT --format FORMAT --output FILE [options]\n\n"
          "Writes a trained model for other programs. CHECKPOINT is a checkpoint, or an HDF5 file\n"
          "with only /model.\n")) {
    return ExitStatus::ok;
  }
  const ExportArguments arguments = parse(invocation.arguments);
  // Without MPI, which may not start on a login node.
  if (!terminal_facts().has_launcher) {
    print_result(export_model(arguments), arguments);
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv,
                 [&](Job& job) {
                   std::optional<Exported> exported;  // of the first rank
                   collectively(job.comm(), [&] {
                     if (job.is_first()) exported = export_model(arguments);
                   });
                   if (exported) print_result(*exported, arguments);
                   return ExitStatus::ok;
                 },
                 {.for_all_ranks = false});
}

}  // namespace lockstep::cli
