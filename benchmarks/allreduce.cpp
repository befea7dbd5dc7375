// Collectives by message size, of all ranks: the all-reduce in place by the job's MPI communicator,
// blocking and nonblocking, by messages on the schedule of --allreduce, and through shared memory
// if all ranks are on one host; the nonblocking reduce-scatter and all-gather of --shard by MPI and
// by messages; what is left of an all-reduce by messages after 0.2 s of computation that never
// calls MPI; and, for comparison, a plain copy of the same number of bytes on all ranks at once.
// Bus bandwidth as in nccl-tests: 2 (n - 1) / n * bytes / time.
#include "../src/compute/host_link.hpp"
#include "benchmark.hpp"

#include "lockstep/comm/mpi_all_reduce.hpp"
#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

namespace lockstep::benchmark {
namespace {

/// Bytes of each message: 4 KiB to 64 MiB by factors of four, then ResNet-50's gradients.
constexpr std::array<std::size_t, 9> message_bytes = {
    4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 25557032 * sizeof(float)};

/// Seconds of `work` on the slowest rank; all ranks start together.
double timed(Communicator& comm, const std::function<void()>& work) {
  comm.barrier();
  const double begin = now();
  work();
  return comm.all_reduce_value(now() - begin, ReduceOp::max);
}

constexpr double computation = 0.2;  ///< seconds

/// One way to move values: a column of the table, and fields of the JSON row.
struct Way {
  std::string column;
  std::string field;
  std::function<void()> work;  ///< empty: not possible here
  bool has_bandwidth = false;
  double hidden = 0;  ///< seconds of the work that do not count
  std::vector<double> seconds = {};
};

/// Values of one message on this rank.
struct Values {
  AlignedBuffer<float> all;
  AlignedBuffer<float> others;
  std::size_t block;
  Values(std::size_t bytes, int ranks)
      : all(bytes / sizeof(float)),
        others(bytes / sizeof(float)),
        block(bytes / sizeof(float) / static_cast<std::size_t>(ranks)) {}
  [[nodiscard]] std::span<float> mine() { return others.span().first(block); }
  [[nodiscard]] std::span<float> blocks(Communicator& comm) {
    return all.span().first(block * static_cast<std::size_t>(comm.size()));
  }
};

void all_reduce(Communicator& comm, Values& values) {
  Request request = comm.start_all_reduce(values.all.span());
  comm.wait(request);
}
void all_reduce_beside_computation(Communicator& comm, Values& values) {
  Request request = comm.start_all_reduce(values.all.span());
  for (const double end = now() + computation; now() < end;) continue;
  comm.wait(request);
}
void reduce_scatter(Communicator& comm, Values& values) {
  Request request =
      comm.start_reduce_scatter(std::span<const float>(values.blocks(comm)), values.mine());
  comm.wait(request);
}
void all_gather(Communicator& comm, Values& values) {
  Request request =
      comm.start_all_gather(std::span<const float>(values.mine()), values.blocks(comm));
  comm.wait(request);
}

/// Communicators may be null.
std::vector<Way> ways_of(Communicator& mpi, Communicator* messages, Communicator* shared,
                         Values& values) {
  const auto by = [&values](Communicator* comm, void (*work)(Communicator&, Values&)) {
    return comm == nullptr ? std::function<void()>()
                           : [comm, work, &values] { work(*comm, values); };
  };
  return {{.column = "MPI",
           .field = "",
           .work = [&] { mpi.all_reduce(values.all.span()); },
           .has_bandwidth = true},
          {.column = "started", .field = "started_", .work = by(&mpi, all_reduce)},
          {.column = "messages",
           .field = "messages_",
           .work = by(messages, all_reduce),
           .has_bandwidth = true},
          {.column = "messages left",
           .field = "messages_left_",
           .work = by(messages, all_reduce_beside_computation),
           .hidden = computation},
          {.column = "shared",
           .field = "shared_",
           .work = by(shared, all_reduce),
           .has_bandwidth = true},
          {.column = "copy",
           .field = "copy_",
           .work = [&] { std::ranges::copy(values.all.span(), values.others.data()); }},
          {.column = "scatter", .field = "reduce_scatter_", .work = by(&mpi, reduce_scatter)},
          {.column = "messages scatter",
           .field = "messages_reduce_scatter_",
           .work = by(messages, reduce_scatter)},
          {.column = "gather", .field = "all_gather_", .work = by(&mpi, all_gather)},
          {.column = "messages gather",
           .field = "messages_all_gather_",
           .work = by(messages, all_gather)}};
}

}  // namespace

BenchResult bench_allreduce(const BenchOptions& options, const BenchContext& context) {
  Communicator& comm = context.comm;
  set_mpi_all_reduce();
  const std::unique_ptr<Communicator> shared = make_shared_memory_communicator(comm).communicator;
  const MessageCommunicatorOptions schedule =
      message_options({.all_reduce = options.config.all_reduce,
                       .progress = options.config.comm_progress,
                       .cores = context.binding.allowed});
  MessageCommunicatorResult messages;
  if (comm.size() > 1) messages = make_message_communicator(comm, schedule);
  BenchResult result;
  result.json = {
      {"benchmark", "allreduce"}, {"algorithm", messages.algorithm}, {"rows", Json::array()}};
  for (const std::size_t bytes : message_bytes) {
    Values values(bytes, comm.size());
    std::vector<Way> ways = ways_of(comm, messages.communicator.get(), shared.get(), values);
    // One way after the other: a network's flow control adapts to what was sent before.
    for (Way& way : ways) {
      for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
        const double seconds = way.work ? timed(comm, way.work) - way.hidden : 0;
        if (i >= options.warmup) way.seconds.push_back(seconds);
      }
    }
    const double ranks = comm.size();
    const double moved = 2 * (ranks - 1) / ranks * static_cast<double>(bytes);
    result.columns = {"bytes", "ranks"};
    std::vector<std::string> row{std::to_string(bytes), std::to_string(comm.size())};
    Json json{{"bytes", bytes}};
    for (const Way& way : ways) {
      const Sample sample = summarize(way.seconds);
      result.columns.push_back(way.column + " ms");
      row.push_back(way.work ? fmt::format("{:.3f}", 1e3 * sample.median) : "-");
      if (!way.work) continue;
      json[way.field + "seconds_median"] = sample.median;
      json[way.field + "seconds_p90"] = sample.p90;
      if (way.has_bandwidth) json[way.field + "bus_bytes_per_second"] = moved / sample.median;
    }
    for (const Way& way : ways) {
      if (!way.has_bandwidth) continue;
      result.columns.push_back(way.column + " GB/s");
      row.push_back(way.work ? fmt::format("{:.2f}", moved / summarize(way.seconds).median / 1e9)
                             : "-");
    }
    result.rows.push_back(std::move(row));
    result.json["rows"].push_back(std::move(json));
  }
  return result;
}

}  // namespace lockstep::benchmark
