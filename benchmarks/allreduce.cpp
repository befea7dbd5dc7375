// In-place all-reduce by message size: the job's MPI communicator, blocking and nonblocking; the
// shared-memory communicator if all ranks are on one host; and, for comparison, a plain copy of the
// same number of bytes on all ranks at once. Bus bandwidth as in nccl-tests: 2 (n - 1) / n * bytes
// / time.
#include "benchmark.hpp"

#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep::benchmark {
namespace {

/// Bytes of each message: 4 KiB to 64 MiB by factors of four, then ResNet-50's gradients.
constexpr std::array<std::size_t, 9> message_bytes = {
    4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 25557032 * sizeof(float)};

/// Seconds of `work` on the slowest rank; all ranks start together.
template <typename Work>
double timed(Communicator& comm, Work&& work) {
  comm.barrier();
  const double begin = now();
  work();
  return comm.all_reduce_value(now() - begin, ReduceOp::max);
}

}  // namespace

BenchResult bench_allreduce(const BenchOptions& options, const BenchContext& context) {
  Communicator& comm = context.comm;
  const std::unique_ptr<Communicator> shared = make_shared_memory_communicator(comm).communicator;
  BenchResult result;
  result.columns = {"bytes",     "ranks",   "MPI ms",       "p90 ms",         "started ms",
                    "shared ms", "copy ms", "MPI bus GB/s", "shared bus GB/s"};
  result.json = {{"benchmark", "allreduce"}, {"rows", Json::array()}};
  for (const std::size_t bytes : message_bytes) {
    AlignedBuffer<float> values(bytes / sizeof(float));
    AlignedBuffer<float> others(bytes / sizeof(float));
    std::vector<double> blocking;
    std::vector<double> started;
    std::vector<double> through_memory;
    std::vector<double> copied;
    for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
      const double first = timed(comm, [&] { comm.all_reduce(values.span()); });
      const double second = timed(comm, [&] {
        Request request = comm.start_all_reduce(values.span());
        comm.wait(request);
      });
      const double third = shared ? timed(comm, [&] { shared->all_reduce(values.span()); }) : 0;
      const double fourth = timed(comm, [&] { std::ranges::copy(values.span(), others.data()); });
      if (i < options.warmup) continue;
      blocking.push_back(first);
      started.push_back(second);
      through_memory.push_back(third);
      copied.push_back(fourth);
    }
    const Sample sample = summarize(blocking);
    const Sample other = summarize(started);
    const Sample memory = summarize(through_memory);
    const Sample copy = summarize(copied);
    const double ranks = comm.size();
    const double moved = 2 * (ranks - 1) / ranks * static_cast<double>(bytes);
    const auto milliseconds = [](double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); };
    const auto bandwidth = [&](double seconds) {
      return fmt::format("{:.2f}", moved / seconds / 1e9);
    };
    result.rows.push_back({std::to_string(bytes), std::to_string(comm.size()),
                           milliseconds(sample.median), milliseconds(sample.p90),
                           milliseconds(other.median), shared ? milliseconds(memory.median) : "-",
                           milliseconds(copy.median), bandwidth(sample.median),
                           shared ? bandwidth(memory.median) : "-"});
    result.json["rows"].push_back({{"bytes", bytes},
                                   {"seconds_median", sample.median},
                                   {"seconds_p90", sample.p90},
                                   {"started_seconds_median", other.median},
                                   {"copy_seconds_median", copy.median},
                                   {"bus_bytes_per_second", moved / sample.median}});
    if (!shared) continue;
    result.json["rows"].back().update({{"shared_seconds_median", memory.median},
                                       {"shared_seconds_p90", memory.p90},
                                       {"shared_bus_bytes_per_second", moved / memory.median}});
  }
  return result;
}

}  // namespace lockstep::benchmark
