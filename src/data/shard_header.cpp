#include "shard_header.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/little_endian.hpp"
#include "lockstep/data/pixel_statistics.hpp"
#include "lockstep/io/other_format.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr std::uint64_t max_samples = std::uint64_t{1} << 48;
constexpr std::uint64_t max_extent = std::uint64_t{1} << 16;
constexpr std::int64_t max_classes = std::numeric_limits<std::int32_t>::max();

ShardColumn column_of(const h5::DatasetInfo& info) {
  return {.offset = info.offset,
          .element_size = static_cast<std::int32_t>(info.element.size),
          .is_signed = info.element.is_signed,
          .little_endian = info.element.little_endian};
}

struct Expected {
  std::size_t axes;
  std::size_t element_size;  ///< 0: any
  const char* text;
  std::size_t other_axes = 0;  ///< also accepted; 0: none
};

h5::DatasetInfo describe(const h5::Object& file, const std::string& path, const std::string& name,
                         const Expected& expected) {
  if (!h5::exists(file, name)) {
    fail(ExitStatus::bad_input, "{} has no dataset /{} (a shard needs {}); write it again", path,
         name, expected.text);
  }
  h5::DatasetInfo info = h5::describe(file, name);
  const bool type_fits = info.element.type == h5::TypeClass::integer &&
                         (expected.element_size == 0 || info.element.size == expected.element_size);
  const std::size_t axes = info.dims.size();
  if (!type_fits || (axes != expected.axes && (axes != expected.other_axes || axes == 0))) {
    fail(ExitStatus::bad_input, "{}:/{} is {} (expected {}); write it again", path, name,
         h5::to_string(info), expected.text);
  }
  if (expected.element_size != 0 && info.element.is_signed) {
    fail(ExitStatus::bad_input, "{}:/{} is {} (expected unsigned, {}); write it again", path, name,
         h5::to_string(info), expected.text);
  }
  return info;
}

void check_count(const std::string& path, const std::string& name, std::uint64_t found,
                 std::uint64_t expected, const char* why) {
  if (found == expected) return;
  fail(ExitStatus::bad_input, "{}:/{} has {} values, not {} ({}); write it again", path, name,
       found, expected, why);
}

bool is_channel_count(std::uint64_t extent) noexcept {
  return extent == 1 || extent == 3 || extent == 4;
}

/// Rejects (N, C, H, W), PyTorch's order, which would be read as (N, H, W, C) images with C rows.
/// Judges by the extents, unless mean or std has as many values as the last axis.
void refuse_channels_first(const h5::Object& file, const std::string& path,
                           const h5::DatasetInfo& images) {
  const auto& dims = images.dims;
  if (!is_channel_count(dims[1]) || is_channel_count(dims[3])) return;
  for (const char* name : {"mean", "std"}) {
    const auto values = h5::read_floats(file, name);
    if (values && values->size() == dims[3]) return;
  }
  fail(
      ExitStatus::bad_input,
      "{0}:/images is {1} (it looks like (N, C, H, W); (N, H, W, C) is read, and {2} channels are "
      "taken only where mean or std has {2} values); rewrite each shard: python3 -c \"import h5py, "
      "sys; f = h5py.File(sys.argv[1], 'a'); f['nhwc'] = f['images'][()].transpose(0, 2, 3, 1); "
      "del f['images']; f.move('nhwc', 'images')\" {0}",
      path, h5::to_string(images), dims[3]);
}

void read_images(const h5::Object& file, const std::string& path, ShardHeader& header) {
  h5::DatasetInfo info = describe(file, path, "images",
                                  {.axes = 4,
                                   .element_size = 1,
                                   .text = "/images uint8 (N, H, W, C), or (N, H, W)",
                                   .other_axes = 3});
  if (info.dims.size() == 3) {
    info.dims.push_back(1);
  } else {
    refuse_channels_first(file, path, info);
  }
  header.image = {.channels = static_cast<std::int64_t>(info.dims[3]),
                  .height = static_cast<std::int64_t>(info.dims[1]),
                  .width = static_cast<std::int64_t>(info.dims[2])};
  const bool extents_fit = std::all_of(info.dims.begin() + 1, info.dims.end(),
                                       [](std::uint64_t d) { return d >= 1 && d <= max_extent; });
  if (!extents_fit ||
      info.dims[1] * info.dims[2] * info.dims[3] > static_cast<std::uint64_t>(max_sample_bytes)) {
    fail(ExitStatus::bad_input,
         "{}:/images is {} (height, width and channels must be at least 1, an image at most {} "
         "bytes); write it again",
         path, h5::to_string(info), max_sample_bytes);
  }
  if (info.dims[0] > max_samples) {
    fail(ExitStatus::bad_input, "{}:/images has {} samples (at most {}); it is damaged", path,
         info.dims[0], max_samples);
  }
  header.samples = static_cast<std::int64_t>(info.dims[0]);
  header.images = column_of(info);
}

void read_encoded(const h5::Object& file, const std::string& path, ShardHeader& header) {
  const h5::DatasetInfo bytes = describe(
      file, path, "encoded", {.axes = 1, .element_size = 1, .text = "/encoded uint8 (bytes,)"});
  const h5::DatasetInfo offsets =
      describe(file, path, "offsets",
               {.axes = 1, .element_size = 8, .text = "/offsets uint64 (N+1,) beside /encoded"});
  if (offsets.elements == 0 || offsets.elements > max_samples) {
    fail(ExitStatus::bad_input,
         "{}:/offsets has {} values (expected uint64 (N+1,)); write it again", path,
         offsets.elements);
  }
  header.encoded = true;
  header.image = {.channels = 0, .height = 0, .width = 0};
  header.encoded_bytes = static_cast<std::int64_t>(bytes.elements);
  header.images = column_of(bytes);
  header.offsets = column_of(offsets);
  header.samples = static_cast<std::int64_t>(offsets.elements) - 1;
}

void check_statistic(const std::string& path, const std::string& name,
                     const std::vector<float>& values, const ShardHeader& header) {
  const auto found = static_cast<std::int64_t>(values.size());
  const bool count_fits =
      header.encoded ? found == 1 || found == 3 : found == header.image.channels;
  if (!count_fits) {
    fail(ExitStatus::bad_input, "{}: attribute {} has {} values, not {} (one a channel); fix it",
         path, name, found, header.encoded ? "1 or 3" : std::to_string(header.image.channels));
  }
  const std::string fault = fault_in_statistic(name, values);
  if (!fault.empty()) fail(ExitStatus::bad_input, "{}: attribute {}", path, fault);
}

void read_attributes(const h5::Object& file, const std::string& path, ShardHeader& header) {
  if (const auto format = h5::read_string(file, "format"); format && *format != "lockstep-shard") {
    fail(ExitStatus::bad_input,
         "{}: attribute format is \"{}\", not \"lockstep-shard\" (another program's file); check "
         "the path",
         path, format->substr(0, 64));
  }
  if (const auto version = h5::read_number<std::int64_t>(file, "version");
      version && *version != 1) {
    fail(ExitStatus::bad_input, "{}: shard version {} (this program reads 1); use a newer lockstep",
         path, *version);
  }
  header.classes = h5::read_number<std::int64_t>(file, "classes");
  if (header.classes && (*header.classes < 1 || *header.classes > max_classes)) {
    fail(ExitStatus::bad_input, "{}: attribute classes is {} (it must be 1 to {}); fix it", path,
         *header.classes, max_classes);
  }
  header.class_names = h5::read_strings(file, "class_names").value_or(std::vector<std::string>{});
  const auto names = static_cast<std::int64_t>(header.class_names.size());
  if (names > 0 && header.classes && names != *header.classes) {
    fail(ExitStatus::bad_input, "{}: {} class_names for {} classes (one each); fix the attribute",
         path, names, *header.classes);
  }
  // The names alone also give the number of classes.
  if (names > 0) header.classes = names;
  if (auto mean = h5::read_floats(file, "mean")) {
    check_statistic(path, "mean", *mean, header);
    header.mean = std::move(*mean);
  }
  if (auto std = h5::read_floats(file, "std")) {
    check_statistic(path, "std", *std, header);
    header.std = std::move(*std);
  }
  header.short_side = h5::read_number<std::int64_t>(file, "short_side").value_or(0);
  if (header.short_side < 0) {
    fail(ExitStatus::bad_input, "{}: attribute short_side is {} (pixels, 0 if unknown); fix it",
         path, header.short_side);
  }
  if (header.mean.size() != header.std.size() && !header.mean.empty() && !header.std.empty()) {
    fail(ExitStatus::bad_input, "{}: {} values of mean, {} of std (one a channel); fix them", path,
         header.mean.size(), header.std.size());
  }
  if (header.encoded) {
    header.image.channels =
        static_cast<std::int64_t>(std::max(header.mean.size(), header.std.size()));
  }
}

Json to_json(const ShardColumn& column) {
  return {column.offset ? Json(*column.offset) : Json(), column.element_size, column.is_signed,
          column.little_endian};
}

ShardColumn column_from(const Json& json) {
  ShardColumn column;
  if (!json.at(0).is_null()) column.offset = json.at(0).get<std::uint64_t>();
  column.element_size = json.at(1).get<std::int32_t>();
  column.is_signed = json.at(2).get<bool>();
  column.little_endian = json.at(3).get<bool>();
  return column;
}

}  // namespace

std::uint32_t checksum_of(const RawSample& sample) {
  return crc32c(little_endian(sample.label), crc32c(sample.bytes));
}

std::uint32_t checksum_change(std::int64_t label, std::int64_t other) {
  constexpr std::uint32_t inversion = ~std::uint32_t{0};  // crc32c() begins and ends with it
  return crc32c(little_endian(label ^ other), inversion) ^ inversion;
}

ShardHeader read_shard_header(const h5::Object& file, const std::string& path,
                              std::uint64_t file_bytes) {
  ShardHeader header;
  const bool images = h5::exists(file, "images");
  const bool encoded = h5::exists(file, "encoded");
  if (!images && !encoded) refuse_keras(file, path);
  if (images == encoded) {
    fail(ExitStatus::bad_input,
         "{} has {} (a shard has /images uint8 (N, H, W, C), or /encoded and /offsets); write it "
         "again",
         path, images ? "both /images and /encoded" : "neither /images nor /encoded");
  }
  images ? read_images(file, path, header) : read_encoded(file, path, header);
  const auto samples = static_cast<std::uint64_t>(header.samples);
  const h5::DatasetInfo labels = describe(
      file, path, "labels", {.axes = 1, .element_size = 0, .text = "/labels integer (N,)"});
  check_count(path, "labels", labels.elements, samples, "one a sample");
  header.labels = column_of(labels);
  if (h5::exists(file, "crc32c")) {
    const h5::DatasetInfo checksums = describe(
        file, path, "crc32c", {.axes = 1, .element_size = 4, .text = "/crc32c uint32 (N,)"});
    check_count(path, "crc32c", checksums.elements, samples, "one a sample");
    header.checksums = column_of(checksums);
  }
  read_attributes(file, path, header);
  header.contiguous = header.samples == 0 || (header.images.offset && header.labels.offset &&
                                              (!header.offsets || header.offsets->offset) &&
                                              (!header.checksums || header.checksums->offset));
  check_columns(header, path, file_bytes);
  return header;
}

void check_column(const ColumnExtent& extent, const std::string& path, std::uint64_t file_bytes) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(extent.elements) *
                              static_cast<std::uint64_t>(extent.column.element_size);
  if (!extent.column.offset) {
    // Deflate expands at most 1032 times; a damaged header may claim any number of rows.
    if (bytes / 1032 <= file_bytes) return;
    fail(
        ExitStatus::bad_input,
        "{}:/{} claims {} bytes in a file of {} (it is damaged or was never filled); copy it again",
        path, extent.name, bytes, file_bytes);
  }
  const std::uint64_t offset = *extent.column.offset;
  if (offset <= file_bytes && bytes <= file_bytes - offset) return;
  fail(ExitStatus::bad_input,
       "{}:/{} takes bytes {} to {} of a file of {} bytes (it is truncated); copy it again", path,
       extent.name, offset, offset + bytes, file_bytes);
}

void check_columns(const ShardHeader& header, const std::string& path, std::uint64_t file_bytes) {
  const std::int64_t image_bytes = header.encoded ? header.encoded_bytes
                                                  : header.samples * header.image.height *
                                                        header.image.width * header.image.channels;
  check_column({header.images, header.encoded ? "encoded" : "images", image_bytes}, path,
               file_bytes);
  check_column({header.labels, "labels", header.samples}, path, file_bytes);
  if (header.offsets) {
    check_column({*header.offsets, "offsets", header.samples + 1}, path, file_bytes);
  }
  if (header.checksums)
    check_column({*header.checksums, "crc32c", header.samples}, path, file_bytes);
}

std::string to_text(const ShardHeader& header) {
  Json json{{"samples", header.samples},
            {"image", {header.image.channels, header.image.height, header.image.width}},
            {"encoded", header.encoded},
            {"encoded_bytes", header.encoded_bytes},
            {"images", to_json(header.images)},
            {"labels", to_json(header.labels)},
            {"contiguous", header.contiguous},
            {"mean", header.mean},
            {"std", header.std},
            {"class_names", header.class_names},
            {"short_side", header.short_side}};
  if (header.offsets) json["offsets"] = to_json(*header.offsets);
  if (header.checksums) json["checksums"] = to_json(*header.checksums);
  if (header.classes) json["classes"] = *header.classes;
  // Class names come from files and may contain any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ShardHeader shard_header_from_text(const std::string& text) {
  const Json json = require_json(text, "a header from rank 0", "this is a bug", trusted_json);
  ShardHeader header;
  header.samples = json.at("samples").get<std::int64_t>();
  header.image = {.channels = json.at("image").at(0).get<std::int64_t>(),
                  .height = json.at("image").at(1).get<std::int64_t>(),
                  .width = json.at("image").at(2).get<std::int64_t>()};
  header.encoded = json.at("encoded").get<bool>();
  header.encoded_bytes = json.at("encoded_bytes").get<std::int64_t>();
  header.images = column_from(json.at("images"));
  header.labels = column_from(json.at("labels"));
  header.contiguous = json.at("contiguous").get<bool>();
  header.mean = json.at("mean").get<std::vector<float>>();
  header.std = json.at("std").get<std::vector<float>>();
  header.class_names = json.at("class_names").get<std::vector<std::string>>();
  header.short_side = json.at("short_side").get<std::int64_t>();
  if (json.contains("offsets")) header.offsets = column_from(json["offsets"]);
  if (json.contains("checksums")) header.checksums = column_from(json["checksums"]);
  if (json.contains("classes")) header.classes = json["classes"].get<std::int64_t>();
  return header;
}

}  // namespace lockstep
