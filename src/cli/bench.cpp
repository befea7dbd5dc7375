#include "benchmark.hpp"
#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_table.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace lockstep::cli {
namespace {

using benchmark::BenchOptions;

struct Page {
  const char* name;
  const char* summary;
  benchmark::BenchResult (*run)(const BenchOptions&, const benchmark::BenchContext&);
};
constexpr Page pages[] = {
    {"step", "the training step on generated images", benchmark::bench_step},
    {"ops", "where a step's time goes: each of its parts timed by itself", benchmark::bench_ops},
    {"allreduce", "the all-reduce by size", benchmark::bench_allreduce},
    {"loader", "the loader against a plain pread of the same bytes", benchmark::bench_loader},
    {"checkpoint", "a save's stall and its write", benchmark::bench_checkpoint}};

OptionTable<BenchOptions> bench_options() {
  OptionTable<BenchOptions> t;
  t.group("Options");
  t.add(&BenchOptions::model,
        {.name = "model", .help = "network of step and checkpoint", .unit = ""})
      .add(&BenchOptions::width, {.name = "width", .help = "as for train", .unit = "", .min = 0})
      .add(&BenchOptions::image_size,
           {.name = "image-size", .help = "height and width", .unit = "pixels", .min = 1})
      .add(&BenchOptions::channels,
           {.name = "channels", .help = "image channels", .unit = "", .min = 1})
      .add(&BenchOptions::classes, {.name = "classes", .help = "outputs", .unit = "", .min = 2})
      .add(&BenchOptions::batch_size,
           {.name = "batch-size", .help = "samples per rank", .unit = "", .min = 1})
      .add(&BenchOptions::steps,
           {.name = "steps", .help = "measured repetitions", .unit = "", .min = 1})
      .add(&BenchOptions::warmup,
           {.name = "warmup", .help = "repetitions before", .unit = "", .min = 0})
      .add(&BenchOptions::precision, {.name = "precision",
                                      .help = "of step",
                                      .unit = "",
                                      .choices = {"fp32", "tf32", "bf16", "fp16"}})
      .add(&BenchOptions::device,
           {.name = "device", .help = "of step", .unit = "", .choices = {"auto", "cpu", "cuda"}})
      .add(&BenchOptions::comm, {.name = "comm",
                                 .help = "of step",
                                 .unit = "",
                                 .choices = {"auto", "mpi", "shared", "nccl"}})
      .add(&BenchOptions::recompute, {.name = "recompute",
                                      .help = "of step and ops: as for train",
                                      .unit = "",
                                      .choices = {"auto", "none", "norms"}})
      .add(&BenchOptions::conv_algorithm, {.name = "conv-algorithm",
                                           .help = "of step and ops: as for train",
                                           .unit = "",
                                           .choices = {"auto", "direct", "winograd"}})
      .add(&BenchOptions::deterministic,
           {.name = "deterministic", .help = "as for train", .unit = ""})
      .add(&BenchOptions::cuda_graph, {.name = "cuda-graph", .help = "as for train", .unit = ""})
      .add(&BenchOptions::input,
           {.name = "input",
            .help = "of step: one batch, generated before, again and again; or each by the loader",
            .unit = "",
            .choices = {"batch", "loader"}})
      .add(
          &BenchOptions::bucket_mb,
          {.name = "bucket-mb", .help = "as for train", .unit = "MiB", .min = 0, .above_min = true})
      .add(&BenchOptions::shard, {.name = "shard",
                                  .help = "step: as for train",
                                  .unit = "",
                                  .choices = {"none", "optimizer", "grad", "full", "hybrid"}})
      .add(&BenchOptions::shard_group, {.name = "shard-group",
                                        .help = "step: as for train",
                                        .unit = "ranks",
                                        .min = 0,
                                        .max = 65536})
      .add(&BenchOptions::optimizer, {.name = "optimizer",
                                      .help = "step: as for train",
                                      .unit = "",
                                      .choices = optimizer_names()})
      .add(&BenchOptions::data, {.name = "data", .help = "shards for loader", .unit = ""})
      .add(&BenchOptions::directory,
           {.name = "directory", .help = "where checkpoint writes", .unit = ""})
      .add(&BenchOptions::loader_threads,
           {.name = "loader-threads", .help = "per rank", .unit = "", .min = 0, .max = 1024})
      .add(&BenchOptions::threads, {.name = "threads",
                                    .help = "per rank; 0: the affinity mask's share",
                                    .unit = "",
                                    .min = 0})
      .add(&BenchOptions::json, {.name = "json", .help = "print one JSON object", .unit = ""});
  return t;
}

const Page& find_page(const std::vector<std::string>& positional) {
  for (const Page& page : pages) {
    if (positional.size() == 1 && positional.front() == page.name) return page;
  }
  fail(ExitStatus::usage,
       "bench takes one of step, ops, allreduce, loader, checkpoint ({} given); see lockstep bench "
       "--help",
       positional.empty() ? "nothing is" : "'" + positional.front() + "' is");
}

}  // namespace

ExitStatus run_bench(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    fmt::print("lockstep bench PAGE [options]: one measured table\n\n");
    for (const Page& page : pages) fmt::print("  {:<12}{}\n", page.name, page.summary);
    fmt::print("{}", bench_options().help());
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const auto parsed = bench_options().parse(invocation.arguments, true);
    const Page& page = find_page(parsed.positional);
    const benchmark::BenchContext context{
        .comm = job.comm(),
        .grid = job.grid(),
        .binding = job.bind(static_cast<int>(parsed.value.threads))};
    benchmark::BenchResult result = page.run(parsed.value, context);
    if (!job.is_first()) return ExitStatus::ok;
    if (parsed.value.json) {
      result.json["machine"] = benchmark::machine_description(context);
      print_json(result.json);
    } else {
      fmt::print("{}", benchmark::format_table(result));
    }
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
