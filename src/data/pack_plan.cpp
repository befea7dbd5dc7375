#include "pack_plan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

std::uint64_t bytes_of(const PackSource& source, SourcePart part) {
  const std::int64_t samples = source.samples(part);
  if (samples == 0) return 0;
  if (!source.info().encoded) {
    return static_cast<std::uint64_t>(samples) * source.bytes_of(part, 0);
  }
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < samples; ++i) total += source.bytes_of(part, i);
  return total;
}

}  // namespace

SampleOrder packing_order(const PackSource& source, SourcePart part, std::uint64_t seed) {
  PhiloxStream stream(seed, RandomPurpose::pack_order, 0, part == SourcePart::train ? 0 : 1);
  return {source.samples(part), stream.next_u64()};
}

std::vector<ShardTask> plan_shards(const PackSource& source, const PackOptions& options) {
  const std::int64_t train = source.samples(SourcePart::train);
  const std::int64_t val = source.samples(SourcePart::val);
  if (train == 0) {
    fail(ExitStatus::bad_input,
         "the source holds no training samples (nothing to pack); check --input");
  }
  if (options.shards && (*options.shards < 1 || *options.shards > train)) {
    fail(ExitStatus::usage,
         "--shards {} for {} training samples (a shard holds at least one); use 1 to {}",
         *options.shards, train, train);
  }
  std::vector<ShardTask> tasks;
  const auto add = [&](SourcePart part, std::int64_t samples, std::int64_t shards) {
    for (std::int64_t i = 0; i < shards; ++i) {
      tasks.push_back({.part = part,
                       .name = packed_shard_name(part, i, shards),
                       .positions = slice_of(samples, shards, i)});
    }
  };
  if (options.shards) {
    add(SourcePart::train, train, *options.shards);
    // Test shards hold at most as many samples as training shards.
    if (val > 0) {
      const std::int64_t size = train / *options.shards;
      add(SourcePart::val, val, (val + size - 1) / size);
    }
  } else {
    for (const SourcePart part : {SourcePart::train, SourcePart::val}) {
      const std::int64_t samples = source.samples(part);
      if (samples == 0) continue;
      add(part, samples, shards_for(bytes_of(source, part), samples, options.shard_mb));
    }
  }
  return tasks;
}

std::string packed_shard_name(SourcePart part, std::int64_t shard, std::int64_t shards) {
  return fmt::format("{}-{:05}-of-{:05}.h5", part == SourcePart::train ? "train" : "val", shard,
                     shards);
}

std::int64_t shards_for(std::uint64_t bytes, std::int64_t samples, double shard_mb) {
  const double wanted = std::ceil(static_cast<double>(bytes) / (shard_mb * 0x1p20));
  return std::clamp(static_cast<std::int64_t>(wanted), std::int64_t{1}, samples);
}

}  // namespace lockstep
