#include "build_graph.hpp"
#include "evaluation_record.hpp"
#include "image_sizes.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/address_space.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/models/trained_layers.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/normalization.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/trainer.hpp"
#include "run_data.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// The parts of a checkpoint that eval needs on every rank.
struct LoadedWeights {
  std::optional<CheckpointReader> reader;   ///< rank 0's
  StoredModel from = StoredModel::current;  ///< rank 0's
  std::string text;                         ///< rank 0's: chosen_model_text()
  Config config;                            ///< the run's, or the default with the request's model
  std::string convolutions;  ///< rank 0's: the run's convolution algorithms, to reproduce its
                             ///< evaluations
  WeightsNormalization normalization;
  ClassNames classes;
};

LoadedWeights load_weights(const EvaluationRequest& request, Communicator& comm) {
  LoadedWeights loaded;
  CheckpointInfo info;
  comm.barrier();
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    loaded.reader.emplace(request.checkpoint, CheckpointUse::weights);
    loaded.from = chosen_model(*loaded.reader, request.ema);
    loaded.text = chosen_model_text(*loaded.reader, loaded.from);
    info = loaded.reader->info();
    if (!info.state && request.model.empty()) {
      fail(ExitStatus::usage,
           "{} holds weights alone (nothing says which model they are of); give --model",
           request.checkpoint);
    }
    if (info.state) loaded.convolutions = info.state->convolutions.value_or("");
  });
  const std::string text = broadcast_text(comm, info.state ? info.state->config : std::string());
  if (!text.empty()) loaded.config = parse_config_text(text);
  if (!request.model.empty()) {
    loaded.config.model = request.model;
    loaded.config.width = request.width;
    loaded.config.stem = request.stem;
    loaded.config.shortcut = request.shortcut;
  }
  if (request.precision) loaded.config.precision = *request.precision;
  loaded.config.image_size = evaluation_size(loaded.config);
  loaded.config.image_size_schedule.clear();
  loaded.config.eval_size = 0;
  if (request.image_size != 0) loaded.config.image_size = request.image_size;
  std::int64_t classes = info.classes;
  comm.broadcast(std::span<std::int64_t>(&classes, 1));
  loaded.classes = broadcast_class_names(info, request.checkpoint, comm);
  if (classes == 0) classes = static_cast<std::int64_t>(loaded.classes.names.size());
  if (classes > 0) loaded.config.classes = classes;
  if (info.mean.empty()) info.mean.assign(loaded.config.mean.begin(), loaded.config.mean.end());
  if (info.std.empty()) info.std.assign(loaded.config.std.begin(), loaded.config.std.end());
  loaded.normalization = broadcast_normalization(info, request.checkpoint, comm);
  comm.barrier();
  return loaded;
}

/// The run's configuration without what is of training alone, and with the request's data. A batch
/// of one sample per rank passes the checks on batches; resolve_run checks the rest.
Config without_training(Config config, const EvaluationRequest& request) {
  config.global_batch_size = 0;
  config.batch_size = 1;
  config.accumulate = 1;
  config.stochastic_depth = 0;
  config.loader_threads = request.loader_threads;
  config.data = request.data;
  config.synthetic = false;
  config.mean = request.mean;
  config.std = request.std;
  return config;
}

/// Runs the evaluation, and writes the results of samples that were requested.
EvaluationResult run_evaluation(const EvaluationRequest& request, Engine& engine,
                                const Dataset& data, Communicator& comm, EvaluatorOptions options) {
  if (!records_samples(request)) return *Evaluator(engine, data, comm, std::move(options)).run();

  std::optional<EvaluationRecord> record;  // rank 0's
  collectively(comm, [&] {
    if (comm.rank() == 0) record.emplace(request, engine.graph(), data.info());
  });
  options.on_samples = [&](const EvaluatedSamples& samples) { record->add(samples); };
  EvaluationResult result = *Evaluator(engine, data, comm, std::move(options)).run();
  collectively(comm, [&] {
    if (record) result.classes = record->finish();
  });
  return result;
}

/// Parameters, as stored and as computed with, and what libraries map; without activations.
std::uint64_t bytes_to_evaluate(const Graph& graph) {
  constexpr std::uint64_t libraries = std::uint64_t{64} << 20;
  std::uint64_t values = 0;
  for (const Parameter& parameter : graph.parameters()) {
    values += static_cast<std::uint64_t>(parameter.shape.elements());
  }
  return libraries + 2 * sizeof(float) * values;
}

/// Error(bad_input) if the data has more classes than the network has outputs.
void require_outputs(const DatasetInfo& data, const Config& network,
                     const EvaluationRequest& request) {
  if (network.classes == 0 || data.classes <= network.classes) return;
  fail(ExitStatus::bad_input,
       "split {} of {} has {} classes, but {} has {} outputs (a label needs an output); evaluate "
       "data of the network's classes",
       request.split, request.data, data.classes, request.checkpoint, network.classes);
}

/// Sets how `config`, the run's, resizes images, as requested. Returns a warning if it does and
/// these images are not resized. Error(usage) if that is requested.
std::string set_resizing(const EvaluationRequest& request, const DatasetInfo& data,
                         Config& config) {
  if (request.eval_crop_ratio != 0 && request.eval_resize != 0) {
    fail(ExitStatus::usage,
         "--eval-crop-ratio {} and --eval-resize {} are both given (each excludes the other); drop "
         "one",
         request.eval_crop_ratio, request.eval_resize);
  }
  Config given;
  given.eval_crop_ratio = request.eval_crop_ratio;
  given.eval_resize = request.eval_resize;
  given.eval_interpolation = request.eval_interpolation.value_or(ResizeFilter::bilinear);
  refuse_resizing(given, data);
  const std::string of_run = resizing_options(config);
  if (!data.encoded) {
    config.eval_crop_ratio = 0;
    config.eval_resize = 0;
    config.eval_interpolation = ResizeFilter::bilinear;
    if (of_run.empty()) return {};
    return fmt::format(
        "{} of the run of {} does not apply to split {} of {} (its images are stored as pixels of "
        "{}x{}, which are cropped, not resized); results may differ from the run's",
        of_run, request.checkpoint, data.split, data.directory, data.image.height,
        data.image.width);
  }
  if (given.eval_crop_ratio != 0 || given.eval_resize != 0) {
    config.eval_crop_ratio = given.eval_crop_ratio;
    config.eval_resize = given.eval_resize;
  }
  if (request.eval_interpolation) config.eval_interpolation = *request.eval_interpolation;
  return {};
}

/// Error(usage) if its layers are not those that were trained, or memory does not hold it.
Graph evaluated_graph(const RunPlan& plan, const EvaluationRequest& request,
                      const LoadedWeights& loaded, const EvaluationJob& job) {
  const auto make = [&](const ModelOptions& options) {
    return make_model(plan.config.model, options);
  };
  Graph graph = make(plan.model);  // its loss does not matter: evaluations compute cross entropy
  collectively(job.comm, [&] {
    if (loaded.reader) {
      require_trained_layers(graph, plan.model, loaded.reader->info().image, make,
                             request.checkpoint);
    }
    require_address_space(bytes_to_evaluate(graph), "to evaluate");
  });
  return graph;
}

}  // namespace

EvaluationResult evaluate(const EvaluationRequest& request, const EvaluationJob& job) {
  Communicator& comm = job.comm;
  collectively(comm, [&] {
    if (comm.rank() == 0) check_output_paths(request);
  });
  LoadedWeights loaded = load_weights(request, comm);
  const auto [data, note] =
      match_data(loaded.classes, open_dataset(request.data, request.split, comm));

  Config config = without_training(loaded.config, request);
  const DatasetInfo& info = data->info();
  require_outputs(info, loaded.config, request);
  const std::string dropped = set_resizing(request, info, config);
  const std::string warning = normalize_as_trained(loaded.normalization, info, config);
  const RunPlan plan = resolve_run(config, info, 1);
  const ImageDescription images = describe_images(plan, nullptr, &info);
  if (job.say) job.say(images.line);
  std::vector<std::string> warnings{note, warning, dropped};
  warnings.insert(warnings.end(), images.warnings.begin(), images.warnings.end());
  for (const std::string& text : warnings) {
    if (job.warn && !text.empty()) job.warn(text);
  }
  const Graph graph = evaluated_graph(plan, request, loaded, job);
  const auto compute = make_compute(graph,
                                    {.device = request.device,
                                     .comm = CommChoice::automatic,
                                     .precision = config.precision,
                                     .threads = job.binding.threads,
                                     .reduces = false,
                                     .conv_algorithm = request.conv_algorithm,
                                     .convolutions = loaded.convolutions,
                                     .decode = request.decode},
                                    make_process_grid(), comm);
  Engine& engine = compute->engine();
  std::vector<std::string> notes;
  collectively(comm, [&] {
    if (loaded.reader) load_model(*loaded.reader, engine, loaded.from, &notes);
  });
  for (const std::string& text : notes) {
    if (job.warn) job.warn(text);
  }
  loaded.reader.reset();
  require_agreement(comm, layout_text(engine), "the parameters' layout",
                    "the processors differ, so the engine chose other layouts");
  broadcast_model(engine, comm);

  LoaderOptions loading =
      evaluation_loader_options(plan, loader_options(plan, engine.input_format()));
  loading.cores = job.binding.allowed;
  loading.threads = loader_threads(config.loader_threads, loading, job.binding.share);
  EvaluatorOptions options{.loader = loading, .batch_size = request.batch_size};
  EvaluationRequest chosen = request;
  chosen.ema = loaded.from == StoredModel::ema;
  EvaluationResult result = run_evaluation(chosen, engine, *data, comm, std::move(options));
  result.ema = *chosen.ema;
  result.weights_text = std::move(loaded.text);
  return result;
}

}  // namespace lockstep
