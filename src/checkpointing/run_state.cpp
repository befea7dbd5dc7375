#include "lockstep/checkpointing/run_state.hpp"

#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/weight_average.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

RunStart read_run_start(const Config& config, const CheckpointDirectory& directory) {
  RunStart start;
  if (config.resume == "none") {
    const auto steps = directory.steps();
    if (!steps.empty()) {
      fail(ExitStatus::usage,
           "--resume none, but {} is there (a fresh run would mix with it); use another --run-dir",
           directory.path_of(steps.front()));
    }
  } else if (config.resume == "auto") {
    if (auto found = directory.newest()) {
      start.state = found->reader.info().state;
      start.path = std::move(found->path);
      start.rejected = std::move(found->rejected);
      start.reader = std::move(found->reader);
    }
  } else {
    start.path = config.resume;
    start.reader.emplace(config.resume, CheckpointUse::resume);
    start.reader->verify();
    start.state = start.reader->info().state;
    const auto steps = directory.steps();
    if (!steps.empty() && steps.front() > start.state->step) {
      fail(ExitStatus::usage,
           "--resume {} is at step {}, but {} is there already (the next start would resume from "
           "that); use another --run-dir, or drop --resume",
           config.resume, start.state->step, directory.path_of(steps.front()));
    }
  }
  // A resumed run takes its weights from the checkpoint.
  if (!start.state && !config.init_from.empty()) {
    start.reader.emplace(config.init_from, CheckpointUse::weights);
  }
  return start;
}

}  // namespace

RunStart find_run_start(const Config& config, CheckpointDirectory* directory, Communicator& comm) {
  RunStart start;
  comm.barrier();
  collectively(comm, [&] {
    if (directory != nullptr) start = read_run_start(config, *directory);
  });
  const std::string text =
      broadcast_text(comm, start.state ? training_state_text(*start.state) : std::string());
  if (!text.empty()) start.state = parse_training_state(text);
  start.path = broadcast_text(comm, start.path);
  comm.barrier();
  return start;
}

void broadcast_model(Engine& engine, Communicator& comm) {
  std::vector<float> host(engine.parameters().size());
  if (comm.rank() == 0) engine.memory().read(engine.parameters(), host);
  comm.broadcast(std::span<float>(host));
  if (comm.rank() != 0) engine.memory().write(host, engine.parameters());
  comm.broadcast(engine.running_statistics());
}

std::vector<std::string> start_model(const RunStart& start, const Config& config, Engine& engine,
                                     StateTransfer& transfer, Optimizer& optimizer,
                                     Communicator& comm, ModelAverage* average) {
  const Graph& graph = engine.graph();
  std::vector<float> unsharded;  // one unit at a time, on rank 0 only
  const auto distribute = [&](const TensorValues& values, const auto& scatter) {
    for (std::size_t unit = 0; unit < transfer.units().size(); ++unit) {
      collectively(comm, [&] {
        if (comm.rank() != 0) return;
        unsharded.resize(transfer.units()[unit].size());
        fill(engine, transfer.units()[unit], values, unsharded);
      });
      scatter(unit);
    }
  };
  TensorValues values;           // on rank 0 only
  TensorValues averaged_values;  // on rank 0 only
  std::vector<std::string> notes;
  const std::span<float> averaged = average != nullptr ? average->statistics() : std::span<float>();
  initialize_statistics(engine);
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    values = initial_values(graph, static_cast<std::uint64_t>(config.seed));
    if (start.reader) {
      const InitHead head = start.state ? InitHead::keep : config.init_head;
      const StoredModel from =
          start.state ? StoredModel::current : chosen_model(*start.reader, std::nullopt);
      const bool partial = !start.state && config.init_partial;
      values = stored_parameters(
          *start.reader, graph,
          {.from = from, .head = head, .partial = partial, .otherwise = values, .notes = &notes});
      load_statistics(*start.reader, graph, from, engine.running_statistics(), partial);
    }
    averaged_values = values;
    if (average != nullptr) std::ranges::copy(engine.running_statistics(), averaged.begin());
    if (average == nullptr || !start.state || start.reader->ema().empty()) return;
    averaged_values = stored_parameters(*start.reader, graph, {.from = StoredModel::ema});
    load_statistics(*start.reader, graph, StoredModel::ema, averaged);
  });
  distribute(values, [&](std::size_t unit) { transfer.scatter_parameters(unit, unsharded); });
  comm.broadcast(engine.running_statistics());
  if (average != nullptr) comm.broadcast(averaged);
  for (std::size_t slot = 0; slot < optimizer.slot_names().size(); ++slot) {
    const std::string& name = optimizer.slot_names()[slot];
    if (name == ema_slot) {
      values = averaged_values;
    } else if (start.state) {
      collectively(comm, [&] {
        if (comm.rank() != 0) return;
        values = stored_slot(*start.reader, graph, optimizer.name(), name);
      });
    } else {
      continue;  // zeros
    }
    distribute(values,
               [&](std::size_t unit) { transfer.scatter(unit, unsharded, optimizer.slot(slot)); });
  }
  return notes;
}

std::string layout_text(const Engine& engine) {
  // Layouts of equal size may differ in blocking, which reorders 1, 2, 3, ... differently.
  std::uint32_t crc = 0;
  std::vector<float> probe;
  std::vector<float> values;
  for (const ArenaView& view : engine.layout().views) {
    const Parameter& parameter =
        engine.graph().parameters()[static_cast<std::size_t>(view.parameter)];
    probe.resize(static_cast<std::size_t>(parameter.shape.elements()));
    std::iota(probe.begin(), probe.end(), 1.0F);
    values.resize(view.size);
    engine.from_plain(probe, view.parameter, values);
    crc = crc32c(std::as_bytes(std::span<const float>(values)), crc);
  }
  return fmt::format("{} values, {:08x}", engine.layout().size(), crc);
}

void require_agreement(Communicator& comm, const std::string& text, const std::string& what,
                       const std::string& why) {
  const std::string expected = broadcast_text(comm, text);
  const std::int32_t differs = text == expected ? 0 : 1;
  if (comm.all_reduce_value(differs, ReduceOp::max) == 0) return;
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<const std::int32_t>(&differs, 1), std::span(all));
  std::vector<int> different;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != 0) different.push_back(rank);
  }
  fail(ExitStatus::usage,
       "{} of rank{} {} is '{}', but rank 0 has '{}' ({}); start all ranks alike", what,
       different.size() == 1 ? "" : "s", fmt::join(different, ", "),
       broadcast_text(comm, text, different.front()), expected, why);
}

}  // namespace lockstep
