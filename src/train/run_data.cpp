#include "run_data.hpp"

#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/train/run_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

ClassNames classes_of(const DatasetInfo& info) {
  return {.of = info.directory == "synthetic"
                    ? info.directory + " data"
                    : fmt::format("split {} of {}", info.split, info.directory),
          .names = info.class_names};
}

/// Refuses to renumber labels that the run was trained on as they are.
void refuse_changed_names(const DatasetInfo& stored, const DatasetInfo& matched,
                          const RunStart& start) {
  if (!start.state || matched.identity == stored.identity) return;
  if (stored.identity != start.state->data_identity) return;
  fail(ExitStatus::bad_input,
       "{} has the labels of {}, but its classes are in another order (only the attribute "
       "class_names has changed since the run began); write the names as they are there",
       classes_of(stored).of, start.path);
}

/// Whether a new run's outputs are those of --init-from, so that the order of classes matters.
bool keeps_head(const Config& config, const RunStart& start, std::int64_t classes,
                Communicator& comm) {
  if (config.init_from.empty() || config.init_head == InitHead::fresh) return false;
  std::int64_t stored = start.reader ? start.reader->info().classes : 0;
  comm.broadcast(std::span<std::int64_t>(&stored, 1));
  const std::int64_t outputs = config.classes != 0 ? config.classes : classes;
  return config.init_head == InitHead::keep || stored == 0 || stored == outputs;
}

}  // namespace

ClassNames broadcast_class_names(const CheckpointInfo& info, const std::string& file,
                                 Communicator& comm) {
  return {.of = file, .names = broadcast_texts(comm, as_utf8(info.class_names))};
}

MatchedData match_data(const ClassNames& network, std::unique_ptr<Dataset> data) {
  const DatasetInfo& info = data->info();
  ClassMatch match = match_classes(network, classes_of(info), ClassUse::evaluation);
  if (match.numbering.empty()) return {.data = std::move(data), .note = std::move(match.note)};
  data->renumber({.numbering = std::move(match.numbering),
                  .class_names = network.names,
                  .identity = info.identity});
  return {.data = std::move(data), .note = std::move(match.note)};
}

MatchedTraining match_training_data(std::unique_ptr<Dataset> data, const RunStart& start,
                                    const Config& config, Communicator& comm) {
  const DatasetInfo stored = data->info();
  ClassNames classes = classes_of(stored);
  if (!start.state && !keeps_head(config, start, stored.classes, comm))
    return {.matched = {.data = std::move(data), .note = {}}, .classes = classes};

  const ClassNames network =
      broadcast_class_names(start.reader ? start.reader->info() : CheckpointInfo(),
                            start.state ? start.path : config.init_from, comm);
  ClassMatch match =
      match_classes(network, classes, start.state ? ClassUse::resume : ClassUse::initial_weights);
  if (!match.numbering.empty()) {
    const std::uint32_t identity = renumbered_identity(stored, match.numbering, comm);
    data->renumber(
        {.numbering = match.numbering, .class_names = network.names, .identity = identity});
    refuse_changed_names(stored, data->info(), start);
    classes.names = network.names;
  } else if (start.state && classes.names.empty()) {
    classes.names = network.names;  // the same data, by its identity
  }
  return {.matched = {.data = std::move(data), .note = std::move(match.note)},
          .classes = std::move(classes)};
}

std::unique_ptr<Dataset> open_training_data(const Config& config, Communicator& comm) {
  if (!config.synthetic) return open_dataset(config.data, "train", comm);
  std::int64_t size = config.image_size != 0 ? config.image_size : default_image_size;
  for (const ImageSizeChange& change : config.image_size_schedule) {
    size = std::max(size, change.size);
  }
  return make_synthetic_dataset({.samples = config.synthetic_samples,
                                 .image = {.channels = config.channels != 0 ? config.channels : 3,
                                           .height = size,
                                           .width = size},
                                 .classes = config.classes != 0 ? config.classes : 1000,
                                 .seed = static_cast<std::uint64_t>(config.seed)});
}

MatchedData open_validation_data(const Config& config, const ClassNames& network,
                                 Communicator& comm) {
  if (config.synthetic) return {};
  bool present = false;
  collectively(comm, [&] { present = comm.rank() != 0 || has_split(config.val_data, "val"); });
  if (comm.all_reduce_value<std::int32_t>(present ? 1 : 0, ReduceOp::min) == 0) return {};
  MatchedData matched = match_data(network, open_dataset(config.val_data, "val", comm));
  const std::int64_t classes = matched.data->info().classes;
  if (classes > config.classes) {
    fail(ExitStatus::usage,
         "the validation split of {} has {} classes, but the network has {} (its labels need an "
         "output each); number the classes of both splits alike, from 0, or give --classes {} if "
         "training lacks the others",
         config.val_data, classes, config.classes, classes);
  }
  return matched;
}

std::shared_ptr<Staging> stage_data(const Config& config, const TrainingJob& job,
                                    const std::vector<Dataset*>& datasets) {
  if (config.stage_dir.empty()) return nullptr;
  std::vector<ShardToCopy> shards;
  std::vector<std::size_t> firsts;
  for (const Dataset* dataset : datasets) {
    firsts.push_back(shards.size());
    if (dataset == nullptr) continue;
    for (ShardToCopy& shard : dataset->shards_to_copy()) shards.push_back(std::move(shard));
  }
  auto staging = std::make_shared<Staging>(
      StagingOptions{
          .directory = config.stage_dir, .job = job_name(), .cores = job.binding.allowed},
      std::move(shards), job.grid, job.comm);
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    if (datasets[i] != nullptr) datasets[i]->read_copies(staging, firsts[i]);
  }
  return staging;
}

void report_staging(Staging* staging, RunReporter& reporter) {
  if (staging == nullptr) return;
  for (const Staging::News& news : staging->take_news()) {
    if (news.bad) {
      reporter.warn(news.text);
    } else {
      reporter.say(news.text);
    }
  }
}

}  // namespace lockstep
