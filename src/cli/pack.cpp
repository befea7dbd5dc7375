#include "lockstep/data/pack.hpp"

#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_table.hpp"
#include "pack_progress.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

namespace lockstep::cli {
namespace {

enum class SourceKind { mnist, cifar, folder };

struct PackArguments {
  SourceKind from = SourceKind::mnist;
  std::string input;
  std::string output;
  std::int64_t shards = 0;  ///< 0: derived from shard_mb
  double shard_mb = 256;
  std::int64_t seed = 0;
  std::int64_t image_size = 224;
  bool keep_encoded = false;
  bool overwrite = false;
  bool json = false;
};

OptionTable<PackArguments> pack_options() {
  OptionTable<PackArguments> table;
  table.group("Source")
      .add(&PackArguments::from, {.name = "from",
                                  .help = "kind of --input",
                                  .unit = "",
                                  .choices = {"mnist", "cifar", "folder"}})
      .add(&PackArguments::input, {.name = "input", .help = "directory to read", .unit = ""})
      .add(&PackArguments::image_size,
           {.name = "image-size",
            .help = "folder: resize the short side to this, then crop the center",
            .unit = "pixels",
            .min = 1,
            .max = 4096})
      .add(&PackArguments::keep_encoded, {.name = "keep-encoded",
                                          .help = "folder: pack JPEG files without decoding them",
                                          .unit = ""})
      .group("Shards")
      .add(&PackArguments::output, {.name = "output",
                                    .help = "directory to write to; created if it does not exist",
                                    .unit = ""})
      .add(&PackArguments::shards, {.name = "shards",
                                    .help = "number of training shards; the test part gets "
                                            "proportionally many; 0: by --shard-mb",
                                    .unit = "",
                                    .min = 0,
                                    .max = 99'999})
      .add(&PackArguments::shard_mb, {.name = "shard-mb",
                                      .help = "largest size of a shard",
                                      .unit = "MiB",
                                      .min = 0,
                                      .above_min = true})
      .add(&PackArguments::seed,
           {.name = "seed", .help = "seed of the samples' order", .unit = "", .min = 0})
      .add(&PackArguments::overwrite,
           {.name = "overwrite", .help = "replace the shards in --output", .unit = ""})
      .group("Result")
      .add(&PackArguments::json, {.name = "json", .help = "print one JSON object", .unit = ""});
  return table;
}

void print_help() {
  fmt::print(
      "usage: lockstep pack --from mnist|cifar|folder --input DIR --output DIR [options]\n\n"
      "Makes HDF5 shards of images and labels, in a seeded random order; the same input gives the\n"
      "same bytes. The source's test part becomes split val. Under mpirun or srun the processes\n"
      "share the work.\n\n"
      "  mnist   {{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte[.gz]: MNIST, Fashion-MNIST, ...\n"
      "  cifar   the binary version of CIFAR-10 or CIFAR-100 (fine labels)\n"
      "  folder  CLASS/*.png|*.jpg, or train/CLASS/... and val/CLASS/...\n"
      "{}\n"
      "example: lockstep pack --from mnist --input /usr/share/datasets/fashion-mnist --output "
      "fashion\n",
      pack_options().help());
}

PackArguments parse(const std::vector<std::string>& arguments) {
  const auto parsed = pack_options().parse(arguments);
  for (const char* name : {"from", "input", "output"}) {
    if (!parsed.given.contains(name)) {
      fail(ExitStatus::usage,
           "--{} is missing (pack needs --from, --input and --output); see "
           "lockstep pack --help",
           name);
    }
  }
  const PackArguments& value = parsed.value;
  if (value.from != SourceKind::folder) {
    for (const char* name : {"image-size", "keep-encoded"}) {
      if (parsed.given.contains(name)) {
        fail(ExitStatus::usage,
             "--{} is for --from folder ({} images are packed as they are); drop "
             "it",
             name, pack_options().get(value, "from"));
      }
    }
  }
  if (value.keep_encoded && parsed.given.contains("image-size")) {
    fail(ExitStatus::usage,
         "--image-size {} with --keep-encoded (JPEG files are packed as they are, "
         "training resizes them); drop one",
         value.image_size);
  }
  if (value.shards != 0 && parsed.given.contains("shard-mb")) {
    fail(ExitStatus::usage,
         "--shards {} with --shard-mb {} (both set the number of shards); "
         "drop one",
         value.shards, value.shard_mb);
  }
  return value;
}

std::unique_ptr<PackSource> open_source(const PackArguments& arguments) {
  switch (arguments.from) {
    case SourceKind::mnist:
      return open_mnist_source(arguments.input);
    case SourceKind::cifar:
      return open_cifar_source(arguments.input);
    case SourceKind::folder:
      break;
  }
  return open_folder_source({.directory = arguments.input,
                             .image_size = arguments.image_size,
                             .keep_encoded = arguments.keep_encoded});
}

void print_result(const PackResult& result, const PackArguments& arguments, double seconds) {
  if (arguments.json) {
    const nlohmann::ordered_json object{
        {"samples", result.train_samples + result.val_samples},
        {"train_samples", result.train_samples},
        {"val_samples", result.val_samples},
        {"shards", result.train_shards + result.val_shards},
        {"classes", result.classes},
        {"mean", result.mean},
        {"std", result.std},
        {"bytes", result.bytes},
        {"seconds", seconds},
    };
    print_json(object);
    return;
  }
  fmt::print("{}: {} classes, {:.1f} MiB, packed in {:.1f} s\n", arguments.output, result.classes,
             static_cast<double>(result.bytes) / 0x1p20, seconds);
  fmt::print("  train  {:>9} samples in {} shard{}\n", result.train_samples, result.train_shards,
             result.train_shards == 1 ? "" : "s");
  if (result.val_samples > 0) {
    fmt::print("  val    {:>9} samples in {} shard{}\n", result.val_samples, result.val_shards,
               result.val_shards == 1 ? "" : "s");
  } else {
    fmt::print("  val         none (the source has no test part)\n");
  }
  fmt::print("  mean   {:.4f}\n  std    {:.4f}\n", fmt::join(result.mean, " "),
             fmt::join(result.std, " "));
  fmt::print("next: lockstep train --data {}\n", arguments.output);
}

}  // namespace

ExitStatus run_pack(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    print_help();
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const PackArguments arguments = parse(invocation.arguments);
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<PackSource> source;
    collectively(job.comm(), [&] { source = open_source(arguments); });
    PackOptions options{.directory = arguments.output,
                        .shards = std::nullopt,
                        .shard_mb = arguments.shard_mb,
                        .seed = static_cast<std::uint64_t>(arguments.seed),
                        .overwrite = arguments.overwrite,
                        .progress = {}};
    if (arguments.shards > 0) options.shards = arguments.shards;
    std::optional<PackProgress> progress;
    if (job.is_first()) {
      progress.emplace();
      options.progress = [&](std::int64_t done, std::int64_t total) {
        progress->update(done, total);
      };
    }
    const PackResult result = pack(*source, options, job.comm());
    progress.reset();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (job.is_first()) print_result(result, arguments, elapsed.count());
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
