#include "training_steps.hpp"

#include "lockstep/engine/engine.hpp"
#include "run_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep {
namespace {

std::string size_text(const ImageShape& image) {
  return fmt::format("{}x{}", image.height, image.width);
}

}  // namespace

TrainingSteps::TrainingSteps(Parts parts, const TrainingState& state)
    : parts_(std::move(parts)), activation_bytes_(largest_bytes_after(index_of(state.epoch))) {
  change(state);
  activation_bytes_ = std::max(activation_bytes_, step_->activation_bytes());
}

/// Index of the epoch's size.
std::size_t TrainingSteps::index_of(std::int64_t epoch) const noexcept {
  const auto later = std::ranges::upper_bound(parts_.graphs, epoch, {}, &SizedGraph::epoch);
  return static_cast<std::size_t>(later - parts_.graphs.begin()) - 1;
}

/// Bytes of the largest later size, if it exceeds the current one; else 0. Programs share the
/// engine's memory, which does not shrink.
std::size_t TrainingSteps::largest_bytes_after(std::size_t index) {
  const auto input_size = [](const SizedGraph& sized) {
    return sized.graph.input_shape().elements();
  };
  const auto sizes = std::span(parts_.graphs).subspan(index);
  const auto largest = std::ranges::max_element(sizes, {}, input_size);
  if (largest == sizes.begin()) return 0;
  std::size_t bytes = 0;
  collectively(parts_.comm, [&] {
    bytes = parts_.session.engine()
                .compile({.batch_size = parts_.geometry.largest_micro_batch(),
                          .training = true,
                          .exchange = &parts_.session.parallel().exchange(),
                          .bucket_ends = parts_.session.parallel().bucket_ends(),
                          .graph = &largest->graph})
                ->activation_bytes();
  });
  return bytes;
}

bool TrainingSteps::change_at(EpochPosition at) const noexcept {
  return at.position == 0 && at.epoch > 0 && parts_.graphs[index_of(at.epoch)].epoch == at.epoch;
}

void TrainingSteps::change(const TrainingState& state) {
  const std::size_t index = index_of(state.epoch);
  const Graph& graph = parts_.graphs[index].graph;
  const std::int64_t end =
      index + 1 == parts_.graphs.size()
          ? parts_.last_step
          : step_after_epochs(parts_.graphs[index + 1].epoch, parts_.geometry, state);
  last_step_ = std::min(end, parts_.last_step);
  step_.reset();
  loader_.reset();  // freed first, so that the two never exist together
  parts_.loading.image = image_shape(graph.input_shape());
  collectively(parts_.comm, [&] {
    loader_ = make_loader(
        parts_.data, parts_.loading,
        plan_training_batches(parts_.geometry, {.epoch = state.epoch, .position = state.position},
                              last_step_ - state.step));
  });
  TrainingSession& session = parts_.session;
  step_.emplace(session.engine(), session.parallel(), session.optimizer(), parts_.comm, *loader_,
                TrainStepOptions{.geometry = parts_.geometry,
                                 .graph = index == 0 ? nullptr : &graph,
                                 .clip_grad_norm = parts_.config.clip_grad_norm,
                                 .loss_scale = loss_scale_of(parts_.config, state),
                                 .has_collectives = session.training_has_collectives(),
                                 .replicas = session.replicas(),
                                 .average = session.average(),
                                 .board = &parts_.board,
                                 .trace = parts_.trace,
                                 .warn = parts_.warn});
}

std::string TrainingSteps::description() const {
  std::string text = "images: " + size_text(image_shape(parts_.graphs.front().graph.input_shape()));
  for (const auto& [epoch, graph] : std::span(parts_.graphs).subspan(1)) {
    text += fmt::format(", {} after {} epoch{}", size_text(image_shape(graph.input_shape())), epoch,
                        epoch == 1 ? "" : "s");
  }
  return text + "; now " + size_text(image());
}

}  // namespace lockstep
