#include "lockstep/run/tensorboard_writer.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/little_endian.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/protobuf.hpp"
#include "lockstep/run/append_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

// Formats: TFRecord, https://www.tensorflow.org/tutorials/load_data/tfrecord; messages Event and
// Summary, tensorflow/core/util/event.proto and framework/summary.proto. Writes only the fields
// that a scalar needs.

namespace lockstep {
namespace {

using protobuf::bytes_field;
using protobuf::double_field;
using protobuf::float_field;
using protobuf::varint_field;

constexpr std::string_view file_prefix = "events.out.tfevents.";
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string framed(std::string_view event) {
  const std::string length = little_endian(std::uint64_t{event.size()});
  return length + little_endian(masked_crc(length)) + std::string(event) +
         little_endian(masked_crc(event));
}

std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Field 2 of an Event; 0 if absent.
std::int64_t step_of(std::string_view event) {
  while (!event.empty()) {
    const auto key = take_varint(event);
    if (!key) return 0;
    std::optional<std::uint64_t> value = 0;
    std::size_t skip = 0;
    switch (*key & 7) {
      case 0:
        value = take_varint(event);
        break;
      case 1:
        skip = 8;
        break;
      case 2:
        value = take_varint(event);
        skip = value ? static_cast<std::size_t>(*value) : 0;
        break;
      case 5:
        skip = 4;
        break;
      default:
        return 0;
    }
    if (!value || skip > event.size()) return 0;
    if (*key == (2 << 3)) return static_cast<std::int64_t>(*value);
    event.remove_prefix(skip);
  }
  return 0;
}

/// The next whole record with its frame; nullopt at the end of the file or if the record is torn.
std::optional<std::string_view> take_record(std::string_view& bytes) {
  constexpr std::size_t header = 12;
  constexpr std::size_t footer = 4;
  if (bytes.size() < header + footer) return std::nullopt;
  std::uint64_t length = 0;
  std::uint32_t length_crc = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::memcpy(&length_crc, bytes.data() + 8, 4);
  if (length_crc != masked_crc(bytes.substr(0, 8)) || length > bytes.size() - header - footer)
    return std::nullopt;
  const std::string_view record = bytes.substr(0, header + length + footer);
  std::uint32_t data_crc = 0;
  std::memcpy(&data_crc, record.data() + header + length, 4);
  if (data_crc != masked_crc(record.substr(header, length))) return std::nullopt;
  bytes.remove_prefix(record.size());
  return record;
}

void cut_file(const FilePath& path, std::int64_t last_step) {
  const Descriptor file = open_input(path);
  const std::uint64_t size = size_of(file, path.text());
  if (size > most_bytes) {
    fail(ExitStatus::bad_input, "{} has {} bytes (at most {} are read); move it away", path.text(),
         size, most_bytes);
  }
  std::string bytes(size, '\0');
  bytes.resize(read_input(file, path.text(), 0, std::as_writable_bytes(std::span(bytes))));
  std::string kept;
  std::string_view rest = bytes;
  while (const auto record = take_record(rest)) {
    if (step_of(record->substr(12, record->size() - 16)) <= last_step) kept += *record;
  }
  if (kept.size() != bytes.size()) write_text_atomically(path, kept);
}

void cut_all(const OpenDirectory& directory, std::int64_t last_step) {
  if (!(directory / ".").exists()) return;
  for (const DirectoryEntry& entry : entries_in(directory / ".")) {
    if (!entry.name.starts_with(file_prefix) || !entry.is_file()) continue;
    const FilePath path = directory / entry.name;
    if (last_step >= 0) {
      cut_file(path, last_step);
    } else {
      path.remove();
    }
  }
}

/// A new file, after earlier ones were cut.
AppendFile create_file(const OpenDirectory& directory, std::int64_t resumed_step) {
  cut_all(directory, resumed_step);
  const std::string host = host_name();
  for (int i = 0;; ++i) {
    const FilePath path =
        directory / fmt::format("{}{:010}.{}.{}.{}", file_prefix,
                                static_cast<std::int64_t>(unix_time()), host, ::getpid(), i);
    AppendFile file(path, AppendFile::Create::exclusive);
    if (file.valid()) return file;
    if (errno != EEXIST) AppendFile::cannot_write(path);
  }
}

}  // namespace

TensorboardWriter::TensorboardWriter(const std::string& run_directory, std::int64_t resumed_step)
    : file_(create_file(OpenDirectory(run_directory), resumed_step)) {
  // Readers reject a file without this first record.
  file_.append(framed(double_field(1, unix_time()) + bytes_field(3, "brain.Event:2")));
}

bool TensorboardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  const std::string summary_value = bytes_field(1, tag) + float_field(2, static_cast<float>(value));
  const std::string summary = bytes_field(1, summary_value);
  return file_.append(framed(double_field(1, unix_time()) +
                             varint_field(2, static_cast<std::uint64_t>(step)) +
                             bytes_field(5, summary)));
}

}  // namespace lockstep
