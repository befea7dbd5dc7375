#include "export_checkpoint.hpp"

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/pixel_statistics.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/models/trained_layers.hpp"
#include "lockstep/train/normalization.hpp"

#include <utility>
#include <variant>

namespace lockstep::cli {
namespace {

constexpr std::int64_t default_channels = 3;

/// The configuration of the run that wrote the file; without a model for a file with only weights.
Config run_config(const CheckpointInfo& info) {
  if (info.state) return parse_config_text(info.state->config);
  Config config;
  config.model.clear();
  return config;
}

Config named_model(const std::string& path, const CheckpointInfo& info, const Config& given) {
  Config config = run_config(info);
  if (!given.model.empty()) {
    config.model = given.model;
    config.width = given.width;
    config.stem = given.stem;
    config.shortcut = given.shortcut;
  }
  if (config.model.empty()) {
    fail(ExitStatus::usage,
         "{} holds weights alone (nothing says which model they are of); give --model", path);
  }
  return config;
}

ImageShape image_of(const std::string& path, const CheckpointInfo& info, const Config& run,
                    const Config& given) {
  ImageShape image = info.image.value_or(
      ImageShape{.channels = run.channels, .height = run.image_size, .width = run.image_size});
  if (const std::int64_t size = evaluation_size(run); size != 0) image.height = image.width = size;
  if (given.channels != 0) image.channels = given.channels;
  if (given.image_size != 0) image.height = image.width = given.image_size;
  if (image.channels == 0) image.channels = default_channels;
  if (image.height == 0) {
    fail(ExitStatus::usage,
         "{} does not say how large its images are (versions up to 0.9.0 and weights alone do "
         "not); give --image-size",
         path);
  }
  return image;
}

/// Rows of the last linear layer in the file, for files that do not name the number of classes.
std::int64_t classes_of(const std::string& path, const CheckpointReader& reader, const Config& run,
                        const ModelOptions& options) {
  if (reader.info().classes > 0) return reader.info().classes;
  if (run.classes > 0) return run.classes;
  const Graph graph = make_model(run.model, options);
  const auto layer =
      std::find_if(graph.nodes().rbegin(), graph.nodes().rend(),
                   [](const Node& node) { return std::holds_alternative<Linear>(node.op); });
  if (layer == graph.nodes().rend()) {
    fail(ExitStatus::bad_input,
         "{} does not say its number of classes (neither an attribute, nor a linear layer of {} "
         "does); give a file with the attribute classes",
         path, run.model);
  }
  const std::string& weight =
      graph.parameters()[static_cast<std::size_t>(layer->parameters.front())].name;
  const auto tensor = std::ranges::find(reader.model(), weight, &CheckpointReader::Tensor::name);
  // Without the tensor, reading the parameters names it.
  return tensor == reader.model().end() || tensor->shape.rank() == 0 ? 1 : tensor->shape[0];
}

std::vector<float> either(const std::vector<double>& first, const std::vector<float>& second,
                          const std::vector<double>& third) {
  if (!first.empty()) return {first.begin(), first.end()};
  return second.empty() ? std::vector<float>(third.begin(), third.end()) : second;
}

/// Sets how the run's evaluations resize JPEG images, if its configuration says so.
void set_resize(const Config& run, TrainedModel& model) {
  if (run.eval_resize == 0 && run.eval_crop_ratio == 0) return;
  const ImageShape image = image_shape(model.graph.input_shape());
  model.resize = run.eval_resize != 0 ? run.eval_resize : short_side_of(image, run.eval_crop_ratio);
  model.interpolation = train_options().get(run, "eval-interpolation");
}

}  // namespace

StoredTrainedModel read_trained_model(const std::string& path, const Config& given,
                                      std::optional<bool> ema) {
  const CheckpointReader reader(path, CheckpointUse::weights);
  const StoredModel from = chosen_model(reader, ema);
  const CheckpointInfo& info = reader.info();
  const Config run = named_model(path, info, given);
  ModelOptions options{.image = image_of(path, info, run, given),
                       .width = run.width,
                       .stem = run.stem,
                       .shortcut = run.shortcut};
  options.classes = classes_of(path, reader, run, options);
  const auto make = [&](const ModelOptions& of) { return make_model(run.model, of); };
  TrainedModel model{.graph = make(options),
                     .parameters = {},
                     .statistics = {},
                     .mean = either(given.mean, info.mean, run.mean),
                     .std = either(given.std, info.std, run.std),
                     .class_names = info.class_names};
  require_trained_layers(model.graph, options, info.image, make, path);
  for (const auto& [name, values] : {std::pair("mean", model.mean), std::pair("std", model.std)}) {
    const std::string fault = fault_in_statistic(name, values);
    if (!fault.empty()) fail(ExitStatus::bad_input, "{}: {}", path, fault);
  }
  if (!info.class_names.empty() &&
      static_cast<std::int64_t>(info.class_names.size()) > model.graph.outputs()) {
    fail(ExitStatus::bad_input,
         "{} has {} class_names, but the network has {} outputs; correct its attribute", path,
         info.class_names.size(), model.graph.outputs());
  }
  if (info.state) {
    model.step = info.state->step;
    model.epoch = info.state->epoch;
    set_resize(run, model);
  }
  std::vector<std::string> notes;
  const TensorValues parameters =
      stored_parameters(reader, model.graph, {.from = from, .notes = &notes});
  for (std::size_t id = 0; id < model.graph.parameters().size(); ++id) {
    model.parameters.push_back(parameters(static_cast<ParameterId>(id)));
  }
  model.statistics = stored_statistics(reader, model.graph, from);
  model.weights = to_string(from);
  Config used;
  used.mean.assign(model.mean.begin(), model.mean.end());
  used.std.assign(model.std.begin(), model.std.end());
  std::string warning = normalization_change(
      {.file = path, .mean = either({}, info.mean, run.mean), .std = either({}, info.std, run.std)},
      used);
  for (const std::string& note : notes) warning += (warning.empty() ? "" : "; ") + note;
  return {.model = std::move(model),
          .weights_text = chosen_model_text(reader, from),
          .warning = std::move(warning)};
}

}  // namespace lockstep::cli
