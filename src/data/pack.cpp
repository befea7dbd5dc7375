#include "lockstep/data/pack.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/data/pixel_statistics.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "pack_plan.hpp"
#include "packing_record.hpp"
#include "shard_writer.hpp"
#include "unfinished_packing.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::int64_t channels_of(const SourceInfo& info) {
  return info.encoded ? 3 : info.image.channels;
}

/// Writes shards one after the other.
class ShardPacker final {
 public:
  /// `progress` has the counts at the start.
  ShardPacker(PackSource& source, const PackOptions& options, const PackedSoFar& progress)
      : source_(source), options_(options), progress_(progress) {}

  ShardRecord pack(const ShardTask& task, const TemporaryFile& file) {
    ShardRecord record;
    PixelStatistics statistics(channels_of(source_.info()));
    const SampleOrder order = packing_order(source_, task.part, options_.seed);
    ShardWriter writer(file, source_.info());
    for (std::int64_t p = task.positions.begin; p < task.positions.end(); ++p) {
      if (const auto read = read_or_skip(task.part, order.at(0, p), record)) {
        if (task.part == SourcePart::train) statistics.add(read->pixels);
        if (read->conversion == Conversion::re_encoded) ++record.re_encoded;
        if (read->conversion == Conversion::resized) ++record.resized;
        writer.append(sample_);
      }
      ++progress_.done;
      if (options_.progress) options_.progress(progress_);
    }
    if (writer.samples() == 0) {
      fail(ExitStatus::bad_input,
           "none of the {} samples of {} can be read (a shard holds at least one; fewer --shards "
           "make "
           "larger ones), {} among them: {}",
           task.positions.count, task.name,
           source_.describe(task.part, record.skipped.back().index), record.skipped.back().reason);
    }
    writer.close();
    if (task.part == SourcePart::train) {
      record.counts.assign(statistics.counts().begin(), statistics.counts().end());
    }
    return record;
  }

 private:
  /// nullopt if the sample is bad and is skipped.
  std::optional<ReadResult> read_or_skip(SourcePart part, std::int64_t index, ShardRecord& record) {
    try {
      return source_.read(part, index, sample_);
    } catch (const Error& error) {
      if (error.status() != ExitStatus::bad_input) throw;
      if (options_.on_bad == OnBad::stop) {
        fail(error.status(), "{}: {}, or give --on-bad skip", source_.describe(part, index),
             error.what());
      }
      record.skipped.push_back({.part = part, .index = index, .reason = error.what()});
      return std::nullopt;
    }
  }

  PackSource& source_;
  const PackOptions& options_;
  PackedSoFar progress_;
  RawSample sample_;
};

void require_same_source(const PackSource& source, Communicator& comm) {
  const std::int64_t mine = source.info().identity;
  if (comm.all_reduce_value(mine, ReduceOp::min) != comm.all_reduce_value(mine, ReduceOp::max)) {
    fail(ExitStatus::bad_input,
         "the ranks see different files (--input must be on storage that all nodes share); move it "
         "there");
  }
}

/// The sum of all ranks' records, with the skipped samples in the source's order.
ShardRecord gather(const ShardRecord& mine, Communicator& comm) {
  ShardRecord all;
  for (const std::string& text : all_gather_text(comm, to_text(mine))) {
    add(all, parse_shard_record(text));
  }
  std::sort(all.skipped.begin(), all.skipped.end(), [](const auto& left, const auto& right) {
    return std::tie(left.part, left.index) < std::tie(right.part, right.index);
  });
  return all;
}

/// All that the shards' bytes depend on. Not `on_bad`: a packing that a bad sample stopped can be
/// continued without it.
PackSettings settings_of(const PackSource& source, const PackOptions& options,
                         const std::vector<ShardTask>& tasks) {
  return {{"lockstep", version()},
          {"source", source.info().settings},
          {"files", fmt::format("{} training and {} test samples with checksum {:08x}",
                                source.samples(SourcePart::train), source.samples(SourcePart::val),
                                source.info().identity)},
          {"seed", std::to_string(options.seed)},
          {"shards", fmt::format("{} to {}", tasks.front().name, tasks.back().name)}};
}

/// The shards in the order in which the ranks take turns, the same on all ranks.
struct ShardOrder {
  std::vector<std::size_t> tasks;  ///< those to pack, then those that an earlier run packed
  std::size_t to_pack = 0;
  std::int64_t samples_before = 0;  ///< of the latter
};

/// Whether these can be samples of the source: who wrote the record is not known.
bool are_of(const PackSource& source, const std::vector<SkippedSample>& samples) {
  return std::ranges::all_of(samples, [&](const SkippedSample& sample) {
    return sample.index >= 0 && sample.index < source.samples(sample.part);
  });
}

/// The same for the record of a shard.
bool is_of(const PackSource& source, SourcePart part, const ShardRecord& record) {
  PixelStatistics statistics(part == SourcePart::train ? channels_of(source.info()) : 0);
  return record.counts.size() == statistics.counts().size() && are_of(source, record.skipped);
}

/// Whether a sample that was skipped can be read now.
bool is_any_readable(PackSource& source, const std::vector<SkippedSample>& skipped) {
  RawSample sample;
  return std::ranges::any_of(skipped, [&](const SkippedSample& each) {
    try {
      static_cast<void>(source.read(each.part, each.index, sample));
      return true;
    } catch (const Error& error) {
      if (error.status() != ExitStatus::bad_input) throw;
      return false;
    }
  });
}

/// Adds the records of finished shards to rank 0's.
ShardOrder order_shards(PackSource& source, const std::vector<ShardTask>& tasks,
                        const UnfinishedPacking& unfinished, const PackOptions& options,
                        ShardRecord& record, Communicator& comm) {
  std::vector<std::int32_t> is_finished(tasks.size(), 0);
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const auto found = unfinished.find(tasks[i].name);
      // Without --on-bad skip, packing it again fails and names the bad sample.
      if (!found || (options.on_bad == OnBad::stop && !found->skipped.empty())) continue;
      if (!is_of(source, tasks[i].part, *found)) continue;
      if (is_any_readable(source, found->skipped)) continue;  // replaced since
      add(record, *found);
      is_finished[i] = 1;
    }
  });
  comm.broadcast(std::span<std::int32_t>(is_finished));
  ShardOrder order;
  for (const std::int32_t finished : {0, 1}) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (is_finished[i] != finished) continue;
      order.tasks.push_back(i);
      if (finished == 0) ++order.to_pack;
      if (finished == 1) order.samples_before += tasks[i].positions.count;
    }
  }
  return order;
}

/// Packs this rank's shards; all ranks stop soon after one fails.
void pack_shards(const std::vector<ShardTask>& tasks, const ShardOrder& order, PackSource& source,
                 const PackOptions& options, UnfinishedPacking& unfinished, ShardRecord& record,
                 Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto ranks = static_cast<std::size_t>(comm.size());
  PackedSoFar progress{.before = order.samples_before};
  for (const ShardTask& task : tasks) progress.all += task.positions.count;
  for (std::size_t i = rank; i < order.to_pack; i += ranks) {
    progress.share += tasks[order.tasks[i]].positions.count;
  }
  ShardPacker packer(source, options, progress);
  for (std::size_t first = 0; first < order.to_pack; first += ranks) {
    collectively(comm, [&] {
      if (first + rank >= order.to_pack) return;
      const ShardTask& task = tasks[order.tasks[first + rank]];
      unfinished.store(task.name, [&](const TemporaryFile& file) {
        ShardRecord packed = packer.pack(task, file);
        add(record, packed);
        return packed;
      });
    });
  }
}

/// Moves all shards to the output; returns their size.
std::uint64_t publish(const std::vector<ShardTask>& tasks, const ShardOrder& order,
                      const ShardAttributes& attributes, UnfinishedPacking& unfinished,
                      Communicator& comm) {
  std::uint64_t bytes = 0;
  // Training needs the training part, so a set that has it is complete.
  for (const SourcePart part : {SourcePart::val, SourcePart::train}) {
    collectively(comm, [&] {
      const auto ranks = static_cast<std::size_t>(comm.size());
      for (auto i = static_cast<std::size_t>(comm.rank()); i < tasks.size(); i += ranks) {
        const ShardTask& task = tasks[order.tasks[i]];
        if (task.part == part) bytes += unfinished.publish(task.name, attributes);
      }
    });
  }
  return comm.all_reduce_value(bytes);
}

std::vector<std::pair<SourcePart, std::int64_t>> places_of(
    const std::vector<SkippedSample>& skipped) {
  std::vector<std::pair<SourcePart, std::int64_t>> places;
  places.reserve(skipped.size());
  for (const SkippedSample& sample : skipped) places.emplace_back(sample.part, sample.index);
  return places;
}

/// Rank 0's finding whether the directory holds all shards of an earlier packing of these settings,
/// and nothing that `on_bad` would refuse. It says how many were packed then.
std::optional<PackResult> find_finished(PackSource& source, const PackSettings& settings,
                                        const std::vector<ShardTask>& tasks,
                                        const PackOptions& options) {
  std::optional<PackResult> found = read_packing_record(options.directory, settings);
  if (!found || (options.on_bad == OnBad::stop && found->skipped > 0)) return std::nullopt;
  std::set<std::string> names;
  for (const ShardTask& task : tasks) names.insert(task.name);
  std::uint64_t bytes = 0;
  for (const std::string& file : names_in(options.directory)) {
    const auto shard = parse_shard_name(file);
    if (!shard || (shard->split != "train" && shard->split != "val")) continue;
    if (names.erase(file) == 0) return std::nullopt;  // of another packing
    bytes += require_input((fs::path(options.directory) / file).string());
  }
  if (!names.empty() || bytes != found->bytes) return std::nullopt;
  std::vector<SkippedSample> skipped;
  for (const auto& [part, index] : found->skipped_at) {
    skipped.push_back({.part = part, .index = index, .reason = {}});
  }
  if (!are_of(source, skipped)) return std::nullopt;
  if (is_any_readable(source, skipped)) {
    fail(ExitStatus::usage,
         "{} holds shards without images that were skipped and can be read now ({} lists them); "
         "give "
         "--overwrite to pack all again, or another --output",
         options.directory, skipped_list_name);
  }
  found->earlier_shards = static_cast<std::int64_t>(tasks.size());
  return found;
}

/// Gives rank 0's result to all ranks; false if it has none.
bool broadcast_result(std::optional<PackResult>& result, const PackSettings& settings,
                      Communicator& comm) {
  const std::string text =
      broadcast_text(comm, result ? packing_record_text(*result, settings) : std::string());
  if (text.empty()) return false;
  const std::int64_t shards = result ? result->earlier_shards : 0;
  if (!result) result = parse_packing_record(text, settings);
  result->earlier_shards = comm.all_reduce_value(shards, ReduceOp::max);
  return true;
}

/// Lists what was left out, and removes old shards: only now that all new ones are written.
void begin_publishing(const PackSource& source, const ShardRecord& record,
                      const PackOptions& options, UnfinishedPacking& unfinished,
                      Communicator& comm) {
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    const bool has_list = !record.skipped.empty() || !source.info().fates.unused().empty();
    const FilePath list = unfinished.file(skipped_list_name);
    if (has_list) write_skipped_list(list, source, record.skipped);
    require_most_of_each_class(source, record.skipped, list.text());
    unfinished.begin_publishing();
    if (has_list) {
      write_skipped_list((fs::path(options.directory) / skipped_list_name).string(), source,
                         record.skipped);
    }
  });
}

/// All but what depends on this call.
PackResult result_of(const PackSource& source, const std::vector<ShardTask>& tasks,
                     const ShardRecord& record, const ShardAttributes& attributes) {
  const auto packed = [&](SourcePart part) {
    return source.samples(part) -
           std::count_if(record.skipped.begin(), record.skipped.end(),
                         [&](const SkippedSample& sample) { return sample.part == part; });
  };
  const auto shards_of = [&](SourcePart part) {
    return std::count_if(tasks.begin(), tasks.end(),
                         [&](const ShardTask& task) { return task.part == part; });
  };
  return {.train_samples = packed(SourcePart::train),
          .val_samples = packed(SourcePart::val),
          .skipped = static_cast<std::int64_t>(record.skipped.size()),
          .skipped_at = places_of(record.skipped),
          .re_encoded = record.re_encoded,
          .resized = record.resized,
          .train_shards = shards_of(SourcePart::train),
          .val_shards = shards_of(SourcePart::val),
          .classes = attributes.classes,
          .mean = attributes.mean,
          .std = attributes.std,
          .left_out = source.info().fates.all(),
          .unused = static_cast<std::int64_t>(source.info().fates.unused().size()),
          .notes = source.info().notes};
}

}  // namespace

std::int64_t entries_of(const PackResult& result) {
  std::int64_t entries = result.train_samples + result.val_samples + result.skipped;
  for (const auto& [reason, of] : result.left_out) entries += of.entries;
  return entries;
}

PackResult pack(PackSource& source, const PackOptions& options, Communicator& comm) {
  require_same_source(source, comm);
  std::vector<ShardTask> tasks;
  PackSettings settings;
  collectively(comm, [&] {
    if (comm.rank() == 0) make_directories(options.directory, "choose another --output");
  });
  UnfinishedPacking unfinished(options.directory);
  std::optional<PackResult> finished;  // rank 0's
  collectively(comm, [&] {
    tasks = plan_shards(source, options);
    settings = settings_of(source, options, tasks);
    if (comm.rank() != 0) return;
    if (!options.overwrite) finished = find_finished(source, settings, tasks, options);
    if (finished) {
      unfinished.end_interrupted(settings);
    } else {
      unfinished.begin(settings, options.overwrite);
    }
  });
  if (broadcast_result(finished, settings, comm)) return *finished;
  ShardRecord mine;
  const ShardOrder order = order_shards(source, tasks, unfinished, options, mine, comm);
  pack_shards(tasks, order, source, options, unfinished, mine, comm);

  const ShardRecord record = gather(mine, comm);
  PixelStatistics statistics(channels_of(source.info()));
  std::copy(record.counts.begin(), record.counts.end(), statistics.counts().begin());
  const ShardAttributes attributes{.classes = source.info().classes,
                                   .class_names = source.info().class_names,
                                   .mean = statistics.mean(),
                                   .std = statistics.standard_deviation(),
                                   .short_side = source.info().short_side};
  begin_publishing(source, record, options, unfinished, comm);
  const std::uint64_t bytes = publish(tasks, order, attributes, unfinished, comm);

  PackResult result = result_of(source, tasks, record, attributes);
  result.earlier_shards = static_cast<std::int64_t>(tasks.size() - order.to_pack);
  result.bytes = bytes;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    write_text_atomically((fs::path(options.directory) / packing_record_name).string(),
                          packing_record_text(result, settings));
    unfinished.end();
  });
  return result;
}

}  // namespace lockstep
