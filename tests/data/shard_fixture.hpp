#pragma once

#include "io/hdf5_file.hpp"
#include "io/temporary_directory.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>

namespace lockstep::test {

/// Status and text of the Error that `work` throws; ok if it throws none.
struct Failure {
  ExitStatus status = ExitStatus::ok;
  std::string text;
  [[nodiscard]] bool says(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
};
template <typename Work>
[[nodiscard]] Failure failure_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {};
}

struct TestShard {
  std::int64_t samples = 10;
  std::int64_t first = 0;  ///< index of the first sample in the whole split
  std::int64_t height = 6;
  std::int64_t width = 5;
  std::int64_t channels = 3;
  bool checksums = true;
  std::optional<std::int64_t> classes = 4;
  std::vector<float> mean{0.1F, 0.2F, 0.3F};
  std::vector<float> std{0.5F, 0.6F, 0.7F};
  std::vector<std::string> class_names = {};
  std::array<std::int64_t, 4> numbering{0, 1, 2, 3};  ///< of the labels
};

[[nodiscard]] inline std::uint8_t pixel_of(std::int64_t sample, std::int64_t i) {
  return static_cast<std::uint8_t>(sample * 31 + i * 7 + (sample >> 3));
}
[[nodiscard]] inline std::int64_t label_of(std::int64_t sample) {
  return sample % 4;
}

[[nodiscard]] inline std::uint32_t sample_checksum(std::span<const std::uint8_t> image,
                                                   std::int64_t label) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>((label >> (8 * i)) & 255);
  return crc32c(bytes, crc32c(std::as_bytes(image)));
}

inline void write_attributes(const h5::File& file, const TestShard& shard) {
  if (shard.classes) h5::write_number<std::int64_t>(file, "classes", *shard.classes);
  if (!shard.mean.empty()) h5::write_floats(file, "mean", shard.mean);
  if (!shard.std.empty()) h5::write_floats(file, "std", shard.std);
  if (!shard.class_names.empty()) h5::write_strings(file, "class_names", shard.class_names);
}

inline void write_shard(const std::string& path, const TestShard& shard) {
  h5::File file = h5::create_file(path);
  const std::int64_t size = shard.height * shard.width * shard.channels;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  std::vector<std::uint32_t> checksums;
  for (std::int64_t n = shard.first; n < shard.first + shard.samples; ++n) {
    for (std::int64_t i = 0; i < size; ++i) pixels.push_back(pixel_of(n, i));
    labels.push_back(shard.numbering[static_cast<std::size_t>(label_of(n))]);
    checksums.push_back(
        sample_checksum(std::span(pixels).last(static_cast<std::size_t>(size)), labels.back()));
  }
  const auto samples = static_cast<std::uint64_t>(shard.samples);
  const std::array dims{samples, static_cast<std::uint64_t>(shard.height),
                        static_cast<std::uint64_t>(shard.width),
                        static_cast<std::uint64_t>(shard.channels)};
  h5::write_dataset<std::uint8_t>(file, "images", dims, pixels);
  const std::array rows{samples};
  h5::write_dataset<std::int64_t>(file, "labels", rows, labels);
  if (shard.checksums) h5::write_dataset<std::uint32_t>(file, "crc32c", rows, checksums);
  write_attributes(file, shard);
  h5::close_written(std::move(file));
}

struct JpegSize {
  int height;
  int width;
  int channels;
};
struct JpegForm {
  int quality = 95;
  int horizontal = 2;  ///< pixels per sample of colour
  int vertical = 2;
  bool progressive = false;
};
/// A JPEG file of grey, RGB or CMYK pixels; value_at(y, i) is value i of row y.
template <typename ValueAt>
[[nodiscard]] std::vector<std::uint8_t> jpeg_of(const JpegSize& size, const JpegForm& form,
                                                const ValueAt& value_at) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &buffer, &bytes);
  info.image_height = static_cast<JDIMENSION>(size.height);
  info.image_width = static_cast<JDIMENSION>(size.width);
  info.input_components = size.channels;
  info.in_color_space = size.channels == 1   ? JCS_GRAYSCALE
                        : size.channels == 3 ? JCS_RGB
                                             : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (size.channels == 3) {
    info.comp_info[0].h_samp_factor = form.horizontal;
    info.comp_info[0].v_samp_factor = form.vertical;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<JSAMPLE> line(static_cast<std::size_t>(size.width * size.channels));
  JSAMPROW row = line.data();
  while (info.next_scanline < info.image_height) {
    for (std::size_t i = 0; i < line.size(); ++i) line[i] = value_at(info.next_scanline, i);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::vector<std::uint8_t> file(buffer, buffer + bytes);
  jpeg_destroy_compress(&info);
  std::free(buffer);
  return file;
}
/// A JPEG file whose pixels are all `value`.
[[nodiscard]] inline std::vector<std::uint8_t> flat_jpeg(const JpegSize& size, std::uint8_t value) {
  return jpeg_of(size, {}, [&](std::size_t, std::size_t) { return value; });
}

inline void write_encoded_shard(const std::string& path,
                                const std::vector<std::vector<std::uint8_t>>& files,
                                const TestShard& shard) {
  h5::File file = h5::create_file(path);
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint64_t> offsets{0};
  std::vector<std::int64_t> labels;
  std::vector<std::uint32_t> checksums;
  for (const auto& jpeg : files) {
    bytes.insert(bytes.end(), jpeg.begin(), jpeg.end());
    offsets.push_back(bytes.size());
    labels.push_back(label_of(static_cast<std::int64_t>(labels.size())));
    checksums.push_back(sample_checksum(jpeg, labels.back()));
  }
  const std::array<std::uint64_t, 1> size{bytes.size()};
  const std::array<std::uint64_t, 1> ends{offsets.size()};
  const std::array<std::uint64_t, 1> rows{files.size()};
  h5::write_dataset<std::uint8_t>(file, "encoded", size, bytes);
  h5::write_dataset<std::uint64_t>(file, "offsets", ends, offsets);
  h5::write_dataset<std::int64_t>(file, "labels", rows, labels);
  if (shard.checksums) h5::write_dataset<std::uint32_t>(file, "crc32c", rows, checksums);
  write_attributes(file, shard);
  h5::close_written(std::move(file));
}

}  // namespace lockstep::test
