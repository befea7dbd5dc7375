#include "lockstep/data/pack.hpp"

#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/run/directory_lock.hpp"
#include "pack_output.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

namespace lockstep::cli {
namespace {

enum class SourceKind { mnist, cifar, folder, tar, webdataset };

/// Of the sizes that may be absent, 0 is none.
struct PackArguments : ImageOptions {
  SourceKind from = SourceKind::mnist;
  std::string output;
  std::int64_t shards = 0;  ///< 0: derived from shard_mb
  double shard_mb = 256;
  std::int64_t seed = 0;
  std::int64_t asked_width = 0;
  std::int64_t asked_short_side = 0;
  bool overwrite = false;
  bool json = false;
};

void add_image_options(OptionTable<PackArguments>& table) {
  table.group("Image files (--from folder, tar, webdataset)")
      .add(&PackArguments::image_size, "image-size",
           "resize the short side to this, then crop the center",
           {.unit = "pixels", .min = 1, .max = 4096})
      .add(&PackArguments::asked_width, "image-width",
           "resize to cover --image-size rows and this many columns, then crop the "
           "center, so that less of wide images is lost; 0: --image-size",
           {.unit = "pixels", .min = 0, .max = 4096})
      .add(&PackArguments::keep_encoded, "keep-encoded",
           "pack JPEG files as they are; PNG and CMYK files become JPEG files")
      .add(&PackArguments::asked_short_side, "short-side",
           "with --keep-encoded: resize images with a longer short side to this, and "
           "encode them again; 0: keep their size",
           {.unit = "pixels", .min = 0, .max = 4096})
      .add(&PackArguments::quality, "quality", "with --keep-encoded: quality of new JPEG files",
           {.min = 1, .max = 100})
      .add(&PackArguments::on_bad, "on-bad",
           "stop at an image that does not decode, or at an entry that looks like data "
           "and has no place; or skip it and list it in skipped.txt",
           {.choices = {"stop", "skip"}})
      .add(&PackArguments::val_labels, "val-labels",
           "file with the classes of validation images that are in no class folders: "
           "ImageNet's LOC_val_solution.csv, or lines IMAGE CLASS")
      .add(&PackArguments::class_ids, "class-ids",
           "lines ID CLASS, for a --val-labels that has only "
           "numbers, as in ILSVRC's development kit")
      .add(&PackArguments::class_names, "class-names",
           "lines CLASS NAME, such as ImageNet's LOC_synset_mapping.txt; the shards then "
           "hold these names");
}

OptionTable<PackArguments> pack_options() {
  OptionTable<PackArguments> table;
  table.group("Source")
      .add(&PackArguments::from, "from", "kind of --input",
           {.choices = {"mnist", "cifar", "folder", "tar", "webdataset"}})
      .add(&PackArguments::directory, "input", "directory to read");
  add_image_options(table);
  table.group("Shards")
      .add(&PackArguments::output, "output", "directory to write to; created if it does not exist")
      .add(&PackArguments::shards, "shards",
           "number of training shards; the test part gets "
           "proportionally many; 0: by --shard-mb",
           {.min = 0, .max = 99'999})
      .add(&PackArguments::shard_mb, "shard-mb", "largest size of a shard",
           {.unit = "MiB", .min = 0, .above_min = true})
      .add(&PackArguments::seed, "seed", "seed of the samples' order", {.min = 0})
      .add(&PackArguments::overwrite, "overwrite",
           "replace the shards in --output, and unfinished ones of other options")
      .group("Result")
      .add(&PackArguments::json, "json", "print one JSON object");
  return table;
}

void print_help() {
  print_out(
      "usage: lockstep pack --from KIND --input DIR --output DIR [options]\n\n"
      "Makes HDF5 shards of images and labels, in a seeded random order; the same input gives the\n"
      "same bytes. The source's test part becomes split val. Under mpirun or srun the processes\n"
      "share the work. The same command continues a packing that was stopped or killed.\n\n"
      "  mnist       {{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte[.gz]: MNIST, Fashion-MNIST, "
      "...\n"
      "  cifar       the binary version of CIFAR-10 or CIFAR-100 (fine labels)\n"
      "  folder      CLASS/**: JPEG and PNG files, or train/CLASS/** and val/CLASS/**; with\n"
      "              --val-labels, val/*.JPEG\n"
      "  tar         ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, which needs "
      "--val-labels\n"
      "  webdataset  train/*.tar and val/*.tar, or *-train-*.tar and *-val*.tar: images with .cls "
      "or\n"
      "              .json\n"
      "{}\n"
      "example: lockstep pack --from mnist --input /usr/share/datasets/fashion-mnist --output "
      "fashion\n",
      Lines{pack_options().help()});
}

PackArguments parse(const std::vector<std::string>& arguments) {
  const auto parsed = pack_options().parse(arguments);
  for (const char* name : {"from", "input", "output"}) {
    if (!parsed.given.contains(name)) {
      fail(ExitStatus::usage,
           "--{} is missing (pack needs --from, --input and --output); see lockstep pack --help",
           name);
    }
  }
  const PackArguments& value = parsed.value;
  if (value.from == SourceKind::mnist || value.from == SourceKind::cifar) {
    for (const char* name : {"image-size", "image-width", "keep-encoded", "short-side", "quality",
                             "on-bad", "val-labels", "class-ids", "class-names"}) {
      if (parsed.given.contains(name)) {
        fail(ExitStatus::usage,
             "--{} is for --from folder, tar and webdataset ({} images are packed as they are); "
             "drop it",
             name, pack_options().get(value, "from"));
      }
    }
  }
  for (const char* name : {"image-size", "image-width"}) {
    if (value.keep_encoded && parsed.given.contains(name)) {
      fail(ExitStatus::usage,
           "--{} {} with --keep-encoded (JPEG files are packed as they are, training resizes "
           "them); drop one, or use --short-side",
           name, pack_options().get(value, name));
    }
  }
  for (const char* name : {"short-side", "quality"}) {
    if (!value.keep_encoded && parsed.given.contains(name)) {
      fail(ExitStatus::usage,
           "--{} {} without --keep-encoded (pixels are packed, no JPEG files); drop it, or add "
           "--keep-encoded",
           name, pack_options().get(value, name));
    }
  }
  if (value.from == SourceKind::webdataset && !value.val_labels.empty()) {
    fail(ExitStatus::usage,
         "--val-labels with --from webdataset (its samples have labels); drop it");
  }
  if (!value.class_ids.empty() && value.val_labels.empty()) {
    fail(ExitStatus::usage,
         "--class-ids {} without --val-labels (it explains the numbers in that file); drop it, or "
         "add --val-labels",
         value.class_ids);
  }
  if (value.shards != 0 && parsed.given.contains("shard-mb")) {
    fail(ExitStatus::usage,
         "--shards {} with --shard-mb {} (both set the number of shards); drop one", value.shards,
         value.shard_mb);
  }
  return value;
}

ImageOptions image_options(const PackArguments& arguments) {
  ImageOptions options = static_cast<const ImageOptions&>(arguments);
  if (arguments.asked_width > 0) options.image_width = arguments.asked_width;
  if (arguments.asked_short_side > 0) options.short_side = arguments.asked_short_side;
  return options;
}

/// Collective; all ranks return or all throw the same Error.
std::unique_ptr<PackSource> open_source(const PackArguments& arguments, Communicator& comm) {
  std::unique_ptr<PackSource> source;
  switch (arguments.from) {
    case SourceKind::mnist:
      collectively(comm, [&] { source = open_mnist_source(arguments.directory); });
      break;
    case SourceKind::cifar:
      collectively(comm, [&] { source = open_cifar_source(arguments.directory); });
      break;
    case SourceKind::folder:
      source = open_folder_source(image_options(arguments), comm);
      break;
    case SourceKind::tar:
      source = open_tar_source(image_options(arguments), comm);
      break;
    case SourceKind::webdataset:
      source = open_webdataset_source(image_options(arguments), comm);
      break;
  }
  return source;
}

/// Error(usage) if the shards would be written into the input, which a second packing would then
/// read.
void require_output_outside(const PackArguments& arguments) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path input = fs::weakly_canonical(fs::absolute(arguments.directory), ignored);
  const fs::path output = fs::weakly_canonical(fs::absolute(arguments.output), ignored);
  const fs::path from_input = output.lexically_relative(input);
  if (from_input.empty() || *from_input.begin() == "..") return;
  fail(ExitStatus::usage,
       "--output {} is {} --input {} (its shards would be taken for data); give a directory "
       "outside of it",
       arguments.output, from_input == "." ? "equal to" : "below", arguments.directory);
}

}  // namespace

ExitStatus run_pack(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    print_help();
    return ExitStatus::ok;
  }
  return run_job(invocation.argc, invocation.argv, [&](Job& job) {
    const PackArguments arguments = parse(invocation.arguments);
    collectively(job.comm(), [&] {
      if (job.is_first()) require_output_outside(arguments);
    });
    const auto start = std::chrono::steady_clock::now();
    const std::unique_ptr<PackSource> source = open_source(arguments, job.comm());
    PackOptions options{.directory = arguments.output,
                        .shards = std::nullopt,
                        .shard_mb = arguments.shard_mb,
                        .seed = static_cast<std::uint64_t>(arguments.seed),
                        .overwrite = arguments.overwrite,
                        .on_bad = arguments.on_bad,
                        .progress = {}};
    if (arguments.shards > 0) options.shards = arguments.shards;
    std::optional<DirectoryLock> lock;
    collectively(job.comm(), [&] {
      if (!job.is_first()) return;
      make_directories(arguments.output, "choose another --output");
      lock.emplace(DirectoryLockOptions{.path = arguments.output,
                                        .job = job_name(),
                                        .file = ".packing.lock",
                                        .what = "directory",
                                        .option = "--output"});
    });
    std::optional<PackProgress> progress;
    if (job.is_first()) {
      progress.emplace();
      options.progress = [&](const PackedSoFar& packed) { progress->update(packed); };
    }
    const PackResult result = pack(*source, options, job.comm());
    progress.reset();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (job.is_first()) {
      print_packed(result, {.output = arguments.output,
                            .json = arguments.json,
                            .short_side = arguments.asked_short_side,
                            .seconds = elapsed.count()});
      std::fflush(stdout);
      warn_of_left_out(result, arguments.output);
    }
    return ExitStatus::ok;
  });
}

}  // namespace lockstep::cli
