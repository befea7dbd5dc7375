#include "match_data.hpp"

#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"

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
  const bool keeps_head =
      start.state || (!config.init_from.empty() && config.init_head == InitHead::keep);
  if (!keeps_head) return {.matched = {.data = std::move(data), .note = {}}, .classes = classes};

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

}  // namespace lockstep
