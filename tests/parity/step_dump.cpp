// step_dump CHECKPOINT INPUT.h5 OUTPUT.h5 STEPS [train options]
// Takes STEPS training steps from CHECKPOINT on the batch in INPUT.h5 (/images float32 NCHW,
// /labels int32; if targets are mixed, /partners int32 and /weights float32; if blocks are dropped,
// /dropped uint64). Writes the results of the first step (/logits, /loss, /gradients/NAME) and the
// parameters and statistics after the last (/model/NAME).
#include "io/hdf5_file.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "lockstep/train/parameter_options.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

struct InputFile {
  std::vector<float> images;  ///< in the engine's layout
  std::vector<std::int32_t> labels;
  std::vector<ImageMix> mixes;         ///< empty: not mixed
  std::vector<std::uint64_t> dropped;  ///< empty: no block
  ImageShape shape;
};

InputFile read_input(const std::string& path) {
  const h5::Object file = h5::open_file(path);
  InputFile input;
  input.images = h5::read_values<float>(file, "images", std::uint64_t{1} << 30);
  input.labels = h5::read_values<std::int32_t>(file, "labels", 1 << 20);
  if (h5::exists(file, "partners")) {
    const auto partners = h5::read_values<std::int32_t>(file, "partners", 1 << 20);
    const auto weights = h5::read_values<float>(file, "weights", 1 << 20);
    for (std::size_t n = 0; n < partners.size(); ++n) {
      input.mixes.push_back({.partner = partners[n], .weight = weights.at(n)});
    }
  }
  if (h5::exists(file, "dropped")) {
    input.dropped = h5::read_values<std::uint64_t>(file, "dropped", 1 << 20);
  }
  const auto dims = h5::describe(file, "images").dims;
  input.shape = {.channels = static_cast<std::int64_t>(dims.at(1)),
                 .height = static_cast<std::int64_t>(dims.at(2)),
                 .width = static_cast<std::int64_t>(dims.at(3))};
  return input;
}

std::vector<float> to_nhwc(const InputFile& input) {
  const auto [channels, height, width] = input.shape;
  std::vector<float> result(input.images.size());
  const std::int64_t pixels = height * width;
  for (std::size_t n = 0; n < input.labels.size(); ++n) {
    const std::int64_t base = static_cast<std::int64_t>(n) * channels * pixels;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < pixels; ++p) {
        result[static_cast<std::size_t>(base + p * channels + c)] =
            input.images[static_cast<std::size_t>(base + c * pixels + p)];
      }
    }
  }
  return result;
}

void write_tensors(h5::Location parent, const std::string& name, const Engine& engine,
                   std::span<const float> arena) {
  const h5::Group group = h5::create_group(parent, name);
  const auto parameters = engine.graph().parameters();
  for (std::size_t id = 0; id < parameters.size(); ++id) {
    std::vector<float> plain(static_cast<std::size_t>(parameters[id].shape.elements()));
    engine.to_plain(
        engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<const float>(arena)),
        static_cast<ParameterId>(id), plain);
    const std::uint64_t dims[] = {plain.size()};
    h5::write_dataset<float>(group, parameters[id].name, dims, plain);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 64;
  const std::vector<std::string> options(argv + 5, argv + argc);
  const Config config = parse_train_options(options).config;
  const InputFile input = read_input(argv[2]);
  Graph graph = make_model(config.model, {.image = input.shape,
                                          .classes = config.classes,
                                          .width = config.width,
                                          .stem = config.stem,
                                          .shortcut = config.shortcut,
                                          .stochastic_depth = config.stochastic_depth,
                                          .label_smoothing = config.label_smoothing,
                                          .loss = config.loss,
                                          .bce_target_threshold = config.bce_target_threshold});
  apply_parameter_options(graph, config);
  const TailBucket tail(graph);
  const auto engine = make_cpu_engine(graph, {.threads = 0, .tail_size = tail.size()});
  load_model(CheckpointReader(argv[1], CheckpointUse::weights), *engine);
  const auto optimizer = make_optimizer(config, engine->layout());
  const std::size_t batch_size = input.labels.size();
  const auto program = engine->compile_training(static_cast<std::int64_t>(batch_size));
  AlignedBuffer<float> images(input.images.size());
  const std::vector<float> nhwc =
      engine->input_format().layout == ImageLayout::nhwc ? to_nhwc(input) : input.images;
  std::copy(nhwc.begin(), nhwc.end(), images.data());

  const h5::File output = h5::create_file(argv[3]);
  for (int step = 1; step <= std::atoi(argv[4]); ++step) {
    program->forward(
        {.values = images.data(),
         .targets = {.labels = input.labels.data(),
                     .mixes = input.mixes.empty() ? nullptr : input.mixes.data()},
         .size = static_cast<std::int64_t>(batch_size),
         .dropped = {.masks = input.dropped.empty() ? nullptr : input.dropped.data()}});
    const BatchMetrics metrics = program->metrics();
    const auto tail_values = engine->gradients().subspan(engine->layout().size());
    tail.clear(tail_values);
    tail.fold(tail_values, program->batch_statistics(), 1.0);
    program->backward({.loss_scale = 1.0F / static_cast<float>(batch_size), .accumulate = false});
    if (step == 1) {
      const std::uint64_t dims[] = {batch_size, static_cast<std::uint64_t>(graph.outputs())};
      h5::write_dataset<float>(output, "logits", dims, program->logits());
      h5::write_number<double>(output, "loss", metrics.loss / static_cast<double>(batch_size));
      write_tensors(output, "gradients", *engine, engine->gradients());
    }
    const double norm =
        std::sqrt(optimizer->squared_norm(engine->gradients().first(engine->layout().size())));
    const double clip = config.clip_grad_norm == 0 ? 1 : config.clip_grad_norm / (norm + 1e-6);
    optimizer->update(
        0, engine->layout().size(), engine->parameters(), engine->gradients(),
        {.lr = config.lr, .step = step, .gradient_scale = static_cast<float>(std::min(1.0, clip))});
    tail.update_running(tail_values, 1, engine->running_statistics());
  }
  write_tensors(output, "model", *engine, engine->parameters());
  const h5::Group statistics = h5::create_group(output, "statistics");
  const float* running = engine->running_statistics().data();
  for (const RunningStatistic& statistic : graph.statistics()) {
    const auto count = static_cast<std::size_t>(statistic.channels);
    const std::uint64_t dims[] = {count};
    h5::write_dataset<float>(statistics, statistic.name, dims, std::span(running, count));
    running += count;
  }
  return 0;
}
