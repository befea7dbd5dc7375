#include "benchmark.hpp"
#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"

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
    {"ops", "each op of the training step, timed separately", benchmark::bench_ops},
    {"allreduce", "the all-reduce at growing sizes", benchmark::bench_allreduce},
    {"loader", "the loader, beside a plain pread of the same bytes", benchmark::bench_loader},
    {"decode", "the loading of generated JPEG files, decoded by the loader or a GPU",
     benchmark::bench_decode},
    {"checkpoint", "how long a save stalls training, and how long it writes",
     benchmark::bench_checkpoint}};

OptionTable<BenchOptions> bench_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<BenchOptions> table;
  table.group("Every page")
      .add(&BenchOptions::steps, "steps", "measured repetitions", {.min = 1})
      .add(&BenchOptions::warmup, "warmup", "unmeasured repetitions before them", {.min = 0})
      .add(&BenchOptions::config, train, {{.name = "threads"}})
      .add(&BenchOptions::json, "json", "print one JSON object");
  table.group("step, ops and checkpoint")
      .add(&BenchOptions::config, train,
           {{.name = "model"},
            {.name = "width"},
            {.name = "image-size", .help = "height and width of the network's input", .min = 1},
            {.name = "channels", .help = "image channels", .min = 1},
            {.name = "classes", .help = "outputs of the network", .min = 2}});
  table.group("step, ops, loader and decode")
      .add(&BenchOptions::config, train,
           {{.name = "batch-size", .help = "samples per rank", .min = 1},
            {.name = "loader-threads",
             .help = "threads per rank that read and augment ahead; 0: the training thread does it",
             .min = 0}});
  table.group("step, ops and decode").add(&BenchOptions::config, train, {{.name = "device"}});
  table.group("step and decode").add(&BenchOptions::config, train, {{.name = "decode"}});
  table.group("step and ops")
      .add(&BenchOptions::config, train,
           {{.name = "precision"},
            {.name = "recompute"},
            {.name = "conv-algorithm"},
            {.name = "deterministic"}});
  table.group("step and allreduce")
      .add(&BenchOptions::config, train, {{.name = "allreduce"}, {.name = "comm-progress"}});
  table.group("step")
      .add(&BenchOptions::config, train,
           {{.name = "comm"},
            {.name = "cuda-graph"},
            {.name = "bucket-mb"},
            {.name = "shard"},
            {.name = "shard-group"},
            {.name = "optimizer"}})
      .add(&BenchOptions::input, "input",
           "batch: the same generated batch every step; loader: each batch from the "
           "loader; jpeg: likewise, from generated JPEG files",
           {.choices = {"batch", "loader", "jpeg"}});
  table.group("loader").add(
      &BenchOptions::config, train,
      {{.name = "data", .help = "directory of shards to read"},
       {.name = "auto-augment", .help = "automatic augmentation, after a random crop and flip"}});
  table.group("checkpoint").add(&BenchOptions::directory, "directory", "directory to write to");
  return table;
}

const Page& find_page(const std::vector<std::string>& positional) {
  for (const Page& page : pages) {
    if (positional.size() == 1 && positional.front() == page.name) return page;
  }
  fail(ExitStatus::usage,
       "bench takes one of step, ops, allreduce, loader, decode, checkpoint ({} given); see "
       "lockstep bench --help",
       positional.empty() ? "nothing is" : "'" + positional.front() + "' is");
}

}  // namespace

ExitStatus run_bench(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    print_out("usage: lockstep bench PAGE [options]\n\nMeasures one thing and prints a table.\n\n");
    for (const Page& page : pages) print_out("  {:<12}{}\n", page.name, page.summary);
    print_out("{}", Lines{bench_options().help()});
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const auto parsed = bench_options().parse(invocation.arguments, true);
    const Page& page = find_page(parsed.positional);
    const benchmark::BenchContext context{
        .comm = job.comm(),
        .grid = job.grid(),
        .binding = job.bind(static_cast<int>(parsed.value.config.threads))};
    benchmark::BenchResult result = page.run(parsed.value, context);
    if (!job.is_first()) return ExitStatus::ok;
    if (parsed.value.json) {
      result.json["machine"] = benchmark::machine_description(context);
      print_json(result.json);
    } else {
      print_out("{}", Lines{benchmark::format_table(result)});
    }
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
