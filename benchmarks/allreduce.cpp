// The all-reduce of the job's communicator, in place, by size. Bus bandwidth as nccl-tests define
// it: 2 (n - 1) / n * bytes / time.
#include "benchmark.hpp"

#include "lockstep/core/aligned_buffer.hpp"

#include <fmt/format.h>

namespace lockstep::benchmark {

BenchResult bench_allreduce(const BenchOptions& options, const BenchContext& context) {
  Communicator& comm = context.comm;
  BenchResult result;
  result.columns = {"bytes", "ranks", "median ms", "p90 ms", "started ms", "bus GB/s"};
  result.json = {{"benchmark", "allreduce"}, {"rows", Json::array()}};
  for (std::size_t bytes = 4096; bytes <= std::size_t{64} << 20; bytes *= 4) {
    AlignedBuffer<float> values(bytes / sizeof(float));
    std::vector<double> blocking;
    std::vector<double> started;
    for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
      comm.barrier();
      double begin = now();
      comm.all_reduce(values.span());
      const double first = comm.all_reduce_value(now() - begin, ReduceOp::max);
      comm.barrier();
      begin = now();
      Request request = comm.start_all_reduce(values.span());
      comm.wait(request);
      const double second = comm.all_reduce_value(now() - begin, ReduceOp::max);
      if (i < options.warmup) continue;
      blocking.push_back(first);
      started.push_back(second);
    }
    const Sample sample = summarize(blocking);
    const Sample other = summarize(started);
    const double ranks = comm.size();
    const double bandwidth =
        2 * (ranks - 1) / ranks * static_cast<double>(bytes) / sample.median / 1e9;
    result.rows.push_back(
        {std::to_string(bytes), std::to_string(comm.size()),
         fmt::format("{:.3f}", 1e3 * sample.median), fmt::format("{:.3f}", 1e3 * sample.p90),
         fmt::format("{:.3f}", 1e3 * other.median), fmt::format("{:.2f}", bandwidth)});
    result.json["rows"].push_back({{"bytes", bytes},
                                   {"seconds_median", sample.median},
                                   {"seconds_p90", sample.p90},
                                   {"started_seconds_median", other.median},
                                   {"bus_bytes_per_second", bandwidth * 1e9}});
  }
  return result;
}

}  // namespace lockstep::benchmark
