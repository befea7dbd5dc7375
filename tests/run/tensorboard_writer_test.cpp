#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/tensorboard_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <vector>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::vector<std::string> event_files(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  return paths;
}

/// CRC-32C bit by bit, independent of the library's.
std::uint32_t slow_crc(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

std::uint32_t unmask(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

struct Message {
  std::vector<std::pair<int, std::string>> fields;  ///< number, raw bytes of the value
};

std::uint64_t varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
}

Message parse(const std::string& bytes) {
  Message message;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint64_t key = varint(bytes, at);
    std::string value;
    if ((key & 7) == 0) {
      const std::uint64_t number = varint(bytes, at);
      value.assign(reinterpret_cast<const char*>(&number), 8);
    } else {
      const std::size_t size = (key & 7) == 2 ? varint(bytes, at) : (key & 7) == 1 ? 8 : 4;
      value = bytes.substr(at, size);
      BOOST_REQUIRE(value.size() == size);
      at += size;
    }
    message.fields.emplace_back(static_cast<int>(key >> 3), value);
  }
  return message;
}

std::string field(const Message& message, int number) {
  for (const auto& [found, value] : message.fields) {
    if (found == number) return value;
  }
  return {};
}

template <typename T>
T as(const std::string& bytes) {
  T value{};
  BOOST_REQUIRE(bytes.size() == sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

using Scalar = std::tuple<std::string, std::int64_t, float>;

/// Reads a file by the documented formats, and verifies every checksum.
std::vector<Scalar> read_scalars(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<Scalar> scalars;
  bool first = true;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = as<std::uint64_t>(bytes.substr(at, 8));
    BOOST_TEST(unmask(as<std::uint32_t>(bytes.substr(at + 8, 4))) == slow_crc(bytes.substr(at, 8)));
    const std::string data = bytes.substr(at + 12, length);
    BOOST_TEST(unmask(as<std::uint32_t>(bytes.substr(at + 12 + length, 4))) == slow_crc(data));
    at += 16 + length;
    const Message event = parse(data);
    BOOST_TEST(as<double>(field(event, 1)) > 1.6e9);
    if (std::exchange(first, false)) {
      BOOST_TEST(field(event, 3) == "brain.Event:2");
      continue;
    }
    const Message value = parse(field(parse(field(event, 5)), 1));
    scalars.emplace_back(field(value, 1), as<std::int64_t>(field(event, 2)),
                         as<float>(field(value, 2)));
  }
  return scalars;
}

}  // namespace

BOOST_AUTO_TEST_CASE(scalars_are_written_in_the_documented_formats) {
  const TemporaryDirectory directory;
  {
    TensorboardWriter writer(directory.path(), -1);
    BOOST_TEST(writer.scalar("train/loss", 1, 0.25));
    BOOST_TEST(writer.scalar("train/loss", 300, -1.5));
    BOOST_TEST(writer.scalar(std::string(200, 't'), 5'000'000'000, 3));
  }

  const auto files = event_files(directory.path());

  BOOST_REQUIRE(files.size() == 1u);
  BOOST_TEST(files[0].find("/events.out.tfevents.") != std::string::npos);
  BOOST_TEST((read_scalars(files[0]) ==
              std::vector<Scalar>{{"train/loss", 1, 0.25F},
                                  {"train/loss", 300, -1.5F},
                                  {std::string(200, 't'), 5'000'000'000, 3.0F}}));
}

BOOST_AUTO_TEST_CASE(resuming_removes_later_steps_and_a_torn_record) {
  const TemporaryDirectory directory;
  {
    TensorboardWriter writer(directory.path(), -1);
    for (const std::int64_t step : {1, 2, 3, 2, 4})
      writer.scalar("loss", step, static_cast<double>(step));
  }
  const std::string old_file = event_files(directory.path()).at(0);
  const std::string bytes = read_file(old_file);
  write_file(old_file, bytes.substr(0, bytes.size() - 3));

  TensorboardWriter writer(directory.path(), 2);
  writer.scalar("loss", 3, 7);

  const auto files = event_files(directory.path());
  BOOST_REQUIRE(files.size() == 2u);
  BOOST_TEST((read_scalars(files[0]) ==
              std::vector<Scalar>{{"loss", 1, 1.0F}, {"loss", 2, 2.0F}, {"loss", 2, 2.0F}}));
  BOOST_TEST((read_scalars(files[1]) == std::vector<Scalar>{{"loss", 3, 7.0F}}));
}

BOOST_AUTO_TEST_CASE(a_fresh_run_drops_old_events_and_nothing_else) {
  const TemporaryDirectory directory;
  { TensorboardWriter(directory.path(), -1).scalar("loss", 1, 1); }
  write_file(directory / "config.ini", "");

  const TensorboardWriter writer(directory.path(), -1);

  BOOST_TEST(event_files(directory.path()).size() == 2u);
  BOOST_TEST(std::filesystem::exists(directory / "config.ini"));
}

BOOST_AUTO_TEST_CASE(damaged_event_files_never_crash) {
  const TemporaryDirectory directory;
  { TensorboardWriter(directory.path(), -1).scalar("loss", 1, 1); }
  const std::string path = event_files(directory.path()).at(0);
  const std::string bytes = read_file(path);

  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xFF);
    write_file(path, damaged);
    { const TensorboardWriter writer(directory.path(), 5); }
    BOOST_TEST(read_file(path).size() < bytes.size());
    for (const std::string& file : event_files(directory.path())) {
      if (file != path) std::filesystem::remove(file);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_missing_directory_is_cannot_write) {
  const TemporaryDirectory directory;

  BOOST_CHECK_EXCEPTION(TensorboardWriter(directory / "absent", -1), Error, [](const Error& error) {
    return error.status() == ExitStatus::cannot_write;
  });
}

BOOST_AUTO_TEST_CASE(tensorboard_reads_the_scalars) {
  const TemporaryDirectory directory;
  const char* probe = LOCKSTEP_PYTHON " -c 'import tensorboard' 2>/dev/null";
  if (std::system(probe) != 0) {
    std::fprintf(stderr, "skipped: " LOCKSTEP_PYTHON " has no tensorboard\n");
    return;
  }
  { TensorboardWriter(directory.path(), -1).scalar("val/top1", 12, 0.75); }

  const std::string code =
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as A\n"
      "a = A('" +
      directory.path() +
      "'); a.Reload(); e = a.Scalars('val/top1')\n"
      "assert [(x.step, x.value) for x in e] == [(12, 0.75)], e\n";
  const TemporaryDirectory scripts;
  write_file(scripts / "read.py", code);

  BOOST_TEST(std::system((LOCKSTEP_PYTHON " " + scripts / "read.py").c_str()) == 0);
}
