#include "command.hpp"
#include "inspect_report.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/graph/summary.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/other_format.hpp"
#include "lockstep/weights/weights_file.hpp"
#include "manifest.hpp"
#include "model_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct InspectArguments {
  Config config = described_config(32);  ///< shard is unused; shard_group 0: no row for hybrid
  std::int64_t ranks = 0;                ///< 0: no memory table
  std::optional<ShardMode> shard;        ///< nullopt: all modes
  std::string engine;                    ///< "cpu", "gpu"; empty: neither
  std::string gpu = "h100";              ///< of a prediction
  bool step = false;
  bool verify = false;
  bool manifest = false;
  std::string output;  ///< of the manifest; empty: standard output
  bool overwrite = false;
  bool json = false;
};

void add_path_options(OptionTable<InspectArguments>& table) {
  table.group("Paths")
      .add(&InspectArguments::verify, "verify",
           "read everything and compare every checksum, which "
           "finds damage (not forgery: --manifest)")
      .add(&InspectArguments::manifest, "manifest",
           "print the SHA-256 sums of the files, for sha256sum -c and to be signed")
      .add(&InspectArguments::output, "output", "with --manifest: write them to this file")
      .add(&InspectArguments::overwrite, "overwrite", "replace --output if it exists");
}

OptionTable<InspectArguments> inspect_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<InspectArguments> table;
  add_path_options(table);
  table.group("Model")
      .add(&InspectArguments::config, train, described_options())
      .add(&InspectArguments::ranks, "ranks",
           "ranks of a run: also show what each keeps and sends, by --shard; 0: do not",
           {.min = 0, .max = 1'000'000})
      .add(&InspectArguments::config, train,
           {{.name = "batch-size", .help = "samples per rank and micro-step", .min = 1},
            {.name = "precision"},
            {.name = "batch-norm",
             .help = "with --engine gpu: sync adds the kernels, but not the collectives, of "
                     "statistics over all ranks"},
            {.name = "optimizer"},
            {.name = "ema-decay"}})
      .add(&InspectArguments::shard, "all",
           {.name = "shard",
            .help = "with --ranks: show only this mode",
            .choices = train.spec("shard").choices})
      .add(&InspectArguments::config, train,
           {{.name = "shard-unit"},
            {.name = "param-dtype"},
            {.name = "reduce-dtype",
             .help = "data type of the gradient reduction, like FSDP's reduce_dtype; auto: fp32"},
            {.name = "shard-group",
             .help = "size of the shard group: with --ranks, also show --shard hybrid; 0: do not"},
            {.name = "accumulate"},
            {.name = "accumulate-full-gradients"},
            {.name = "bucket-mb"}})
      .add(&InspectArguments::engine, "engine",
           "cpu: also show which algorithm computes each convolution, and the measured "
           "times; gpu: predict a step's kernels")
      .add(&InspectArguments::gpu, "gpu", "with --engine gpu: a100, h100, h200 or b200")
      .add(&InspectArguments::step, "step",
           "list the ops of a rank's step: what each reads, writes and sends (with "
           "--ranks and the options above)")
      .add(&InspectArguments::config, train,
           {{.name = "conv-algorithm"},
            {.name = "recompute"},
            {.name = "threads", .help = "compute threads per rank; 0: one per core"}});
  table.group("Result").add(&InspectArguments::json, "json", "print one JSON object");
  return table;
}

void print_help() {
  print_out(
      "usage: lockstep inspect PATH... [--verify] [--json]\n"
      "       lockstep inspect --manifest PATH... [--output FILE]\n"
      "       lockstep inspect --model NAME [options] [--json]\n\n"
      "Shows what a shard, a data set (a directory of shards), a checkpoint, a run directory or a\n"
      "model holds. All paths are read; the exit status is that of the first fault.\n\n"
      "models: {}\n{}",
      fmt::join(model_names(), " "), Lines{inspect_options().help()});
}

/// What --manifest needs and excludes.
void check_manifest(const OptionTable<InspectArguments>::Parsed& parsed) {
  const InspectArguments& arguments = parsed.value;
  if (!arguments.manifest && (!arguments.output.empty() || arguments.overwrite)) {
    fail(ExitStatus::usage, "--{} without --manifest (only that writes a file); give --manifest",
         arguments.output.empty() ? "overwrite" : "output");
  }
  if (!arguments.manifest) return;
  if (parsed.positional.empty()) {
    fail(ExitStatus::usage, "--manifest without a path (a model has no files); give one");
  }
  if (arguments.verify || arguments.json) {
    fail(ExitStatus::usage, "--manifest with --{} (it prints only sums); drop one",
         arguments.verify ? "verify" : "json");
  }
  if (!arguments.output.empty()) {
    require_output("--output", arguments.output,
                   arguments.overwrite ? Existing::replace : Existing::refuse);
  }
}

InspectArguments check(const OptionTable<InspectArguments>::Parsed& parsed) {
  const InspectArguments& arguments = parsed.value;
  const Config& config = arguments.config;
  check_manifest(parsed);
  if (config.model.empty() && parsed.positional.empty()) {
    fail(ExitStatus::usage,
         "nothing to inspect (neither a path nor --model); see lockstep inspect --help");
  }
  if (!config.model.empty() && !parsed.positional.empty()) {
    fail(ExitStatus::usage, "--model {} and the path {} (one or the other); drop one", config.model,
         parsed.positional.front());
  }
  for (const std::string& name : parsed.given) {
    const bool is_of_paths = name == "verify" || name == "manifest" || name == "output" ||
                             name == "overwrite" || name == "json";
    if (!parsed.positional.empty() && !is_of_paths) {
      fail(ExitStatus::usage, "--{} with the path {} (it describes a network); drop it", name,
           parsed.positional.front());
    }
  }
  if (arguments.shard && arguments.ranks == 0) {
    fail(ExitStatus::usage,
         "--shard without --ranks (the memory depends on their number); give --ranks");
  }
  if (arguments.shard == ShardMode::hybrid && config.shard_group == 0) {
    fail(ExitStatus::usage,
         "--shard hybrid without --shard-group (only a run knows how many ranks a node has); give "
         "the number");
  }
  if (config.shard_group > 0 && arguments.ranks == 0) {
    fail(ExitStatus::usage,
         "--shard-group {} without --ranks (it divides them into groups); give --ranks",
         config.shard_group);
  }
  if (config.shard_group > 0 && arguments.ranks % config.shard_group != 0) {
    fail(ExitStatus::usage,
         "--shard-group {} does not divide {} ranks (groups must be equal); give another number",
         config.shard_group, arguments.ranks);
  }
  if (!arguments.engine.empty() && arguments.engine != "cpu" && arguments.engine != "gpu") {
    fail(ExitStatus::usage, "--engine {} is unknown (there are two engines); use cpu or gpu",
         arguments.engine);
  }
  if (parsed.given.contains("gpu") && arguments.engine != "gpu") {
    fail(ExitStatus::usage,
         "--gpu {} without --engine gpu (it names the GPU of a prediction); give --engine gpu",
         arguments.gpu);
  }
  if (!config.model.empty() && arguments.verify) {
    fail(ExitStatus::usage, "--verify needs a file (a model has no checksums); drop it");
  }
  return arguments;
}

Report inspect_file(const std::string& named, Verify verify) {
  const FilePath path = follow_file_link(named);
  if (WeightsFile::open(path)) return inspect_checkpoint(path, verify);
  const h5::Object file = h5::open_file(path);
  if (h5::exists(file, "model")) return inspect_checkpoint(path, verify);
  if (h5::exists(file, "images") || h5::exists(file, "encoded") || h5::exists(file, "labels")) {
    return inspect_shard(named, verify);
  }
  refuse_keras(file, path.text());
  fail(ExitStatus::bad_input,
       "{} is neither a shard nor a checkpoint (no /images, /encoded, /labels or /model in it; its "
       "objects: {}); check the path",
       path.text(), fmt::join(h5::children(file, "/"), ", "));
}

/// A shard, a directory of shards, a checkpoint or a run directory. Error(no_input) if the path is
/// absent, Error(bad_input) if it is none of these.
Report inspect_path(const std::string& path, Verify verify) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    fail(ExitStatus::no_input, "cannot read {} ({}); check the path", path,
         error ? error.message() : std::strerror(ENOENT));
  }
  if (!fs::is_directory(status)) return inspect_file(path, verify);
  const fs::path base(path);
  const bool is_run =
      fs::exists(base / "metrics.jsonl", error) || fs::exists(base / "checkpoints", error);
  return is_run ? inspect_run(path, verify) : inspect_data_set(path, verify);
}

ExitStatus write_manifest(const std::vector<std::string>& paths,
                          const InspectArguments& arguments) {
  const std::string text = manifest(paths, arguments.output);
  if (!arguments.output.empty()) {
    write_text_atomically(arguments.output, text);
  } else {
    print_exact(text);  // sha256sum needs the bytes of the names
  }
  return ExitStatus::ok;
}

ExitStatus inspect_paths(const std::vector<std::string>& paths, const InspectArguments& arguments) {
  ExitStatus status = ExitStatus::ok;
  Json objects = Json::array();
  bool first = true;
  for (const std::string& path : paths) {
    Report report;
    keep_fault(report,
               [&] { report = inspect_path(path, arguments.verify ? Verify::yes : Verify::no); });
    if (status == ExitStatus::ok) status = report.status;
    if (arguments.json) {
      if (report.json.is_null()) report.json = {{"path", path}, {"kind", nullptr}};
      report.json["faults"] = report.faults;
      objects.push_back(std::move(report.json));
    } else {
      print_out("{}{}", Lines{first || report.text.empty() ? "" : "\n"}, Lines{report.text});
    }
    for (const std::string& fault : report.faults) print_error(fault);
    first = first && report.text.empty();
  }
  if (arguments.json) {
    print_json(paths.size() == 1 ? objects.front() : Json{{"inspected", objects}});
  }
  return status;
}

Report inspect_network(const InspectArguments& arguments) {
  Config config = arguments.config;
  const Graph graph = described_model(config);
  const ModelSummary summary = summarize_model(graph);
  Report report{.json = summary_json(summary), .text = format_summary(summary)};
  const auto add = [&](const char* name, const Report& part) {
    report.json[name] = part.json;
    report.text += "\n" + part.text;
  };
  if (const std::string note = stem_note(graph.name(), model_options(config)); !note.empty()) {
    report.json["note"] = note;
    report.text += note + "\n";
  }
  // Compiles with a run's convolution plan, so memory and algorithms equal a run's.
  ConvolutionPlan convolutions;
  const bool on_processors = cpu_computes_in(config.precision);
  if ((arguments.ranks > 0 && on_processors) || arguments.engine == "cpu") {
    TrialCache cache(trial_cache_path());
    convolutions = plan_convolutions(graph,
                                     {.algorithm = config.conv_algorithm,
                                      .precision = config.precision,
                                      .threads = static_cast<int>(config.threads),
                                      .batch_size = config.batch_size},
                                     cache);
  }
  if (arguments.engine == "gpu") add("engine", inspect_gpu(graph, config, arguments.gpu));
  if (arguments.engine == "cpu") add("engine", inspect_engine(graph, config, convolutions));
  if (arguments.step) {
    Config listed = config;
    listed.shard = arguments.shard.value_or(ShardMode::none);
    validate_communication_dtypes(listed);
    add("step", inspect_step(graph, listed, std::max(1, static_cast<int>(arguments.ranks))));
  }
  if (arguments.ranks > 0) {
    config.shard = ShardMode::full;  // validates for a sharded mode, as all rows but the first are
    validate_communication_dtypes(config);
    add("memory", inspect_memory(graph, {.ranks = static_cast<int>(arguments.ranks),
                                         .convolutions = convolutions.choices,
                                         .on_processors = on_processors,
                                         .only = arguments.shard,
                                         .config = config}));
  }
  return report;
}

}  // namespace

std::string line(const std::string& name, const std::string& value) {
  return value.empty() ? std::string()
                       : fmt::format("  {:<17}{}\n", escape_line(name), escape_line(value));
}

void add_damage(Report& report, Json& json, const char* each, std::size_t earlier) {
  const bool undamaged = report.faults.size() == earlier;
  json["verified"] = undamaged;
  report.text += line("undamaged", undamaged ? fmt::format("yes, every {}", each) : "NO");
}

std::string join(const std::vector<float>& values) {
  return fmt::format("{:.4f}", fmt::join(values, " "));
}

std::string join(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 10;
  if (names.size() <= shown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, ... {} (see --json)",
                     fmt::join(names.begin(), names.begin() + shown, ", "), names.back());
}

ExitStatus run_inspect(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    print_help();
    return ExitStatus::ok;
  }
  const auto parsed = inspect_options().parse(invocation.arguments, /*allow_positional=*/true);
  const InspectArguments arguments = check(parsed);
  if (arguments.manifest) return write_manifest(parsed.positional, arguments);
  if (arguments.config.model.empty()) return inspect_paths(parsed.positional, arguments);
  const Report report = inspect_network(arguments);
  if (arguments.json) {
    print_json(report.json);
  } else {
    print_out("{}", Lines{report.text});
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
