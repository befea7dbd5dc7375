#include "lockstep/data/shard_file.hpp"
#include "io/hdf5_file.hpp"

#include "data/shard_fixture.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::string shard_name = "train-00000-of-00001.h5";

int failure_of_pread = 0;  ///< errno of each call; 0: none fails
int changed_pread = 0;     ///< the call that gets other bytes, from 1; 0: none

/// The parts of a shard, each of which a test can replace by a wrong one.
struct Parts {
  std::function<void(const h5::File&)> images = [](const h5::File& file) {
    const std::array<std::uint64_t, 4> dims{4, 2, 2, 1};
    h5::write_dataset<std::uint8_t>(file, "images", dims, std::vector<std::uint8_t>(16, 9));
  };
  std::function<void(const h5::File&)> labels = [](const h5::File& file) {
    const std::array<std::uint64_t, 1> rows{4};
    h5::write_dataset<std::int64_t>(file, "labels", rows, std::vector<std::int64_t>{0, 1, 2, 3});
  };
  std::function<void(const h5::File&)> rest = [](const h5::File&) {};
};

Failure verify(const Parts& parts) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  h5::File file = h5::create_file(path);
  parts.images(file);
  parts.labels(file);
  parts.rest(file);
  h5::close_written(std::move(file));
  return failure_of([&] { verify_shard(path); });
}

template <typename T>
std::function<void(const h5::File&)> dataset(const std::string& name,
                                             const std::vector<std::uint64_t>& dims,
                                             const std::vector<T>& values) {
  return [=](const h5::File& file) { h5::write_dataset<T>(file, name, dims, values); };
}

/// The number of read calls of this process.
std::int64_t read_calls() {
  std::ifstream file("/proc/self/io");
  for (std::string name; file >> name;) {
    std::int64_t count = 0;
    file >> count;
    if (name == "syscr:") return count;
  }
  return 0;
}

void expect(const Failure& failure, const std::string& part,
            ExitStatus status = ExitStatus::bad_input) {
  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(status), failure.text);
  BOOST_TEST(failure.says(part), failure.text);
}

}  // namespace

/// In place of libc's.
extern "C" ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  if (failure_of_pread == 0) {
    const ssize_t done = syscall(SYS_pread64, file, bytes, count, offset);
    if (changed_pread > 0 && --changed_pread == 0) std::memset(bytes, 0x7f, count);
    return done;
  }
  errno = failure_of_pread;
  return -1;
}

BOOST_AUTO_TEST_CASE(names_give_split_number_and_count) {
  const auto name = parse_shard_name("my-split-00003-of-00016.h5");

  BOOST_REQUIRE(name.has_value());
  BOOST_TEST((*name == ShardName{.split = "my-split", .number = 3, .count = 16}));
  for (const char* other : {"train-3-of-16.h5", "train-00003-of-00016.hdf5", "-00003-of-00016.h5",
                            "train-0000x-of-00016.h5", "train.h5", "", "train-00003-of-+0016.h5"}) {
    BOOST_TEST(!parse_shard_name(other).has_value(), other);
  }
}

BOOST_AUTO_TEST_CASE(a_missing_shard_is_named) {
  const TemporaryDirectory directory;
  for (const int i : {0, 1, 3}) {
    write_file(directory / fmt::format("train-{:05}-of-00004.h5", i), "");
  }

  const Failure failure = failure_of([&] { (void)list_shards(directory.path(), "train"); });

  expect(failure, "train-00002-of-00004.h5 is missing", ExitStatus::no_input);
  expect(failure_of([&] { (void)list_shards(directory.path(), "val"); }), "no shards of split val",
         ExitStatus::no_input);
  expect(failure_of([&] { (void)list_shards(directory / "none", "val"); }), "cannot list",
         ExitStatus::no_input);
}

BOOST_AUTO_TEST_CASE(two_counts_in_one_directory_are_refused) {
  const TemporaryDirectory directory;
  write_file(directory / "train-00000-of-00001.h5", "");
  write_file(directory / "train-00001-of-00002.h5", "");

  const Failure failure = failure_of([&] { (void)list_shards(directory.path(), "train"); });

  expect(failure, "train-00000-of-00001.h5 and train-00001-of-00002.h5");
}

BOOST_AUTO_TEST_CASE(every_sample_is_read_as_written) {
  const TemporaryDirectory directory;
  write_shard(directory / shard_name, {});
  const ShardFile shard(directory / shard_name);
  RawSample sample;

  for (std::int64_t n = 9; n >= 0; --n) {
    shard.read(n, sample);

    BOOST_TEST(sample.label == label_of(n));
    BOOST_REQUIRE_EQUAL(sample.bytes.size(), 90u);
    for (std::int64_t i = 0; i < 90; ++i) {
      BOOST_REQUIRE_EQUAL(std::to_integer<int>(sample.bytes[static_cast<std::size_t>(i)]),
                          pixel_of(n, i));
    }
  }
  BOOST_TEST(shard.header().contiguous);
  BOOST_TEST(shard.scan().largest_label == 3);
}

BOOST_AUTO_TEST_CASE(a_header_from_its_text_reads_the_same_samples) {
  const TemporaryDirectory directory;
  write_shard(directory / shard_name, {});
  const ShardFile shard(directory / shard_name);

  const ShardFile other(directory / shard_name, shard_header_from_text(to_text(shard.header())));

  RawSample first;
  RawSample second;
  shard.read(7, first);
  other.read(7, second);
  BOOST_TEST((first.bytes == second.bytes));
  BOOST_TEST(first.label == second.label);
  BOOST_TEST(other.scan().checksum == shard.scan().checksum);
  BOOST_TEST((other.header().mean == shard.header().mean));
}

BOOST_AUTO_TEST_CASE(labels_of_every_integer_type_are_read) {
  const auto good = [](const Failure& failure) {
    BOOST_TEST(static_cast<int>(failure.status) == 0, failure.text);
  };
  good(verify({.labels = dataset<std::uint8_t>("labels", {4}, {0, 200, 2, 3})}));
  good(verify({.labels = dataset<std::int8_t>("labels", {4}, {0, 100, 2, 3})}));
  good(verify({.labels = dataset<std::int32_t>("labels", {4}, {0, 70'000, 2, 3})}));
  good(verify({.labels = dataset<std::uint16_t>("labels", {4}, {0, 60'000, 2, 3})}));
  expect(verify({.labels = dataset<std::int8_t>("labels", {4}, {0, 100, -2, 3})}),
         "sample 2 has label -2");
  expect(verify({.labels = dataset<std::uint64_t>("labels", {4}, {0, ~std::uint64_t{0}, 2, 3})}),
         "sample 1 has label");
}

BOOST_AUTO_TEST_CASE(wrong_datasets_are_named) {
  const auto nothing = [](const h5::File&) {};
  expect(verify({.images = nothing}), "neither /images nor /encoded");
  expect(verify({.labels = nothing}), "no dataset /labels");
  expect(verify({.images = dataset<float>("images", {4, 2, 2, 1}, std::vector<float>(16))}),
         "expected /images uint8 (N, H, W, C), or (N, H, W)");
  expect(verify({.images =
                     dataset<std::int8_t>("images", {4, 2, 2, 1}, std::vector<std::int8_t>(16))}),
         "expected unsigned");
  expect(verify({.images = dataset<std::uint8_t>("images", {4, 4}, std::vector<std::uint8_t>(16))}),
         "expected /images uint8 (N, H, W, C), or (N, H, W)");
  expect(verify({.labels = dataset<float>("labels", {4}, {0, 1, 2, 3})}), "labels integer (N,)");
  expect(verify({.labels = dataset<std::int64_t>("labels", {3}, {0, 1, 2})}), "3 values, not 4");
  expect(verify({.rest = dataset<std::uint32_t>("crc32c", {3}, {0, 1, 2})}), "3 values, not 4");
  expect(verify({.rest = dataset<std::uint8_t>("encoded", {3}, {0, 1, 2})}), "both /images");
}

BOOST_AUTO_TEST_CASE(images_of_three_axes_have_one_channel) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  std::vector<std::uint8_t> pixels(2 * 3 * 5);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  h5::File file = h5::create_file(path);
  dataset<std::uint8_t>("images", {2, 3, 5}, pixels)(file);
  dataset<std::int64_t>("labels", {2}, {0, 1})(file);
  h5::close_written(std::move(file));

  const ShardFile shard(path);
  RawSample sample;
  shard.read(1, sample);

  BOOST_TEST((shard.header().image == ImageShape{.channels = 1, .height = 3, .width = 5}));
  BOOST_REQUIRE_EQUAL(sample.bytes.size(), 15u);
  BOOST_TEST(std::to_integer<int>(sample.bytes.front()) == 15);
  BOOST_TEST(std::to_integer<int>(sample.bytes.back()) == 29);
}

BOOST_AUTO_TEST_CASE(images_with_channels_first_are_refused) {
  const auto verify_shape = [](std::uint64_t a, std::uint64_t b, std::uint64_t c,
                               const std::vector<float>& mean = {}) {
    Parts parts;
    parts.images =
        dataset<std::uint8_t>("images", {4, a, b, c}, std::vector<std::uint8_t>(4 * a * b * c, 9));
    parts.rest = [&mean](const h5::File& file) {
      if (!mean.empty()) h5::write_floats(file, "mean", mean);
    };
    return verify(parts);
  };
  const std::array<std::array<std::uint64_t, 3>, 4> channels_first{
      {{3, 32, 32}, {1, 28, 28}, {4, 8, 6}, {3, 1, 2}}};
  for (const auto& [a, b, c] : channels_first) {
    const Failure failure = verify_shape(a, b, c);
    expect(failure, "looks like (N, C, H, W)");
    expect(failure, fmt::format("/images is 4x{}x{}x{} uint8", a, b, c));
    expect(failure, "f['images'][()].transpose(0, 2, 3, 1)");
  }
  // The user of such a file would write one value per channel of the wrong axis.
  expect(verify_shape(3, 32, 32, {0.1F, 0.2F, 0.3F}), "looks like (N, C, H, W)");

  // If both axes or neither can be channels, the last axis is taken.
  const std::array<std::array<std::uint64_t, 3>, 5> channels_last{
      {{3, 32, 3}, {1, 1, 4}, {4, 5, 1}, {32, 32, 12}, {2, 7, 7}}};
  for (const auto& [a, b, c] : channels_last) {
    BOOST_TEST(verify_shape(a, b, c).text == "", fmt::format("4x{}x{}x{}", a, b, c));
  }
  // Images of three rows and five channels, as their attributes show.
  BOOST_TEST(verify_shape(3, 8, 5, std::vector<float>(5, 0.5F)).text == "");
}

BOOST_AUTO_TEST_CASE(hostile_attributes_are_refused) {
  const auto with = [](std::function<void(const h5::File&)> write) {
    return verify({.rest = std::move(write)});
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto floats = [&](const std::string& name, const std::vector<float>& values) {
    return with([=](const h5::File& file) { h5::write_floats(file, name, values); });
  };
  const auto integer = [&](const std::string& name, std::int64_t value) {
    return with([=](const h5::File& file) { h5::write_number<std::int64_t>(file, name, value); });
  };

  expect(floats("mean", {0.5F, 0.5F}), "attribute mean has 2 values, not 1");
  expect(floats("mean", {nan}),
         "attribute mean is nan (it must be from 0 to 1, as pixels are); fix it");
  expect(floats("std", {0.0F}), "from 1e-6 to 1");
  expect(floats("std", {std::numeric_limits<float>::infinity()}), "attribute std is inf");
  expect(floats("mean", {127.5F}),
         "attribute mean is 127.5 (it must be from 0 to 1, as pixels are); "
         "divide by 255: 0.5");
  expect(floats("mean", {256.0F}), "fix it");
  expect(floats("std", {51.0F}), "divide by 255: 0.2");
  expect(integer("classes", -1), "attribute classes is -1");
  expect(integer("classes", 0), "attribute classes is 0");
  expect(integer("classes", std::int64_t{1} << 40), "attribute classes is");
  expect(integer("classes", 3), "sample 3 has label 3 (labels must be in [0, 3))");
  expect(integer("version", 2), "shard version 2");
  expect(with([](const h5::File& file) { h5::write_string(file, "format", "other"); }),
         "attribute format is \"other\"");
  expect(with([](const h5::File& file) {
           h5::write_number<std::int64_t>(file, "classes", 4);
           h5::write_strings(file, "class_names", std::vector<std::string>{"a", "b"});
         }),
         "2 class_names for 4 classes");
  expect(with([](const h5::File& file) { h5::write_string(file, "classes", "four"); }), "classes");
}

BOOST_AUTO_TEST_CASE(a_flipped_byte_names_file_and_sample) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  write_shard(path, {});
  const auto offset = *ShardFile(path).header().images.offset + 6 * 90 + 17;
  std::string bytes = read_file(path);
  bytes[offset] = static_cast<char>(bytes[offset] ^ 4);
  write_file(path, bytes);

  const ShardFile shard(path);
  RawSample sample;
  shard.read(5, sample);
  const Failure failure = failure_of([&] { shard.read(6, sample); });

  expect(failure, path + ": sample 6 has checksum");
  expect(failure_of([&] { verify_shard(path); }), "sample 6 has checksum");
}

BOOST_AUTO_TEST_CASE(each_sample_is_read_with_one_call_on_any_thread) {
  constexpr std::int64_t samples = 1300;  // labels and checksums are read in blocks of 512
  for (const bool encoded : {false, true}) {
    const TemporaryDirectory directory;
    const std::string path = directory / shard_name;
    if (encoded) {
      std::vector<std::vector<std::uint8_t>> files;
      for (std::int64_t i = 0; i < samples; ++i) {
        files.emplace_back(static_cast<std::size_t>(1 + i % 7), static_cast<std::uint8_t>(i));
      }
      write_encoded_shard(path, files, {});
    } else {
      write_shard(path, {.samples = samples});
    }
    const ShardFile shard(path);
    const std::int64_t before = read_calls();
    if (before == 0) {
      std::fprintf(stderr, "skipped: /proc/self/io cannot be read\n");
      return;
    }
    std::vector<int> wrong(4);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        RawSample sample;
        for (std::int64_t i = static_cast<std::int64_t>(t); i < samples; i += 4) {
          const std::int64_t n = i * 607 % samples;
          shard.read(n, sample);
          const auto pixel = std::to_integer<std::uint8_t>(sample.bytes[0]);
          const auto expected = encoded ? static_cast<std::uint8_t>(n) : pixel_of(n, 0);
          if (pixel != expected || sample.label != label_of(n)) ++wrong[t];
        }
      });
    }
    threads.clear();
    const std::int64_t calls = read_calls() - before;

    BOOST_TEST(wrong == std::vector<int>(4), boost::test_tools::per_element());
    // In addition, each thread may read three columns in three blocks each.
    BOOST_TEST(calls >= samples);
    BOOST_TEST(calls <= samples + 3 * 3 * 4 + 4);
  }
}

BOOST_AUTO_TEST_CASE(truncation_is_detected_at_any_length) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  write_shard(path, {});
  const std::string bytes = read_file(path);

  for (std::size_t size = 0; size < bytes.size(); size += 101) {
    write_file(path, bytes.substr(0, size));
    const Failure failure = failure_of([&] { verify_shard(path); });
    BOOST_TEST(static_cast<int>(failure.status) == 65, size << ": " << failure.text);
  }
  const ShardHeader header = [&] {
    write_file(path, bytes);
    return ShardFile(path).header();
  }();
  const auto end = static_cast<std::size_t>(*header.images.offset) + 500;
  write_file(path, bytes.substr(0, end));

  expect(failure_of([&] { ShardFile(path, header); }), "it is truncated");
}

BOOST_AUTO_TEST_CASE(a_file_that_is_cut_while_it_is_open_is_bad_input) {
  const TemporaryDirectory directory;
  write_shard(directory / shard_name, {});
  const ShardFile shard(directory / shard_name);
  std::filesystem::resize_file(directory / shard_name,
                               std::filesystem::file_size(directory / shard_name) / 2);
  RawSample sample;

  const Failure failure = failure_of([&] { shard.read(9, sample); });

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(failure.says("was truncated since it was opened"), failure.text);
}

BOOST_AUTO_TEST_CASE(a_file_system_that_does_not_answer_may_be_there_at_a_restart) {
  const TemporaryDirectory directory;
  write_shard(directory / shard_name, {});
  for (const auto& [error, status] :
       {std::pair(EIO, ExitStatus::internal), std::pair(ESTALE, ExitStatus::internal),
        std::pair(ENOTCONN, ExitStatus::internal), std::pair(ETIMEDOUT, ExitStatus::internal),
        std::pair(EACCES, ExitStatus::no_input)}) {
    const ShardFile shard(directory / shard_name);
    RawSample sample;
    failure_of_pread = error;
    const Failure failure = failure_of([&] { shard.read(3, sample); });
    failure_of_pread = 0;

    BOOST_TEST((failure.status == status), failure.text);
    BOOST_TEST(failure.says(std::strerror(error)), failure.text);
  }
}

BOOST_AUTO_TEST_CASE(labels_that_change_between_two_reads_are_refused) {
  const TemporaryDirectory directory;
  write_shard(directory / shard_name, {});
  const ShardFile shard(directory / shard_name);

  changed_pread = 3;  // after the labels and the checksums, the labels again
  const Failure failure = failure_of([&] { (void)shard.scan({3, 2, 1, 0}); });

  BOOST_TEST(changed_pread == 0);
  expect(failure, "sample 0 has label 9187201950435737471 (labels must be in [0, 4))");
}

BOOST_AUTO_TEST_CASE(an_absent_file_is_no_input) {
  expect(failure_of([] { verify_shard("/nonexistent/train-00000-of-00001.h5"); }), "cannot read",
         ExitStatus::no_input);
}

BOOST_AUTO_TEST_CASE(any_flipped_byte_gives_an_error_or_a_valid_shard) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  write_shard(path, {.samples = 3});
  const std::string bytes = read_file(path);

  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(~damaged[i]);
    write_file(path, damaged);
    const Failure failure = failure_of([&] { verify_shard(path); });
    const int status = static_cast<int>(failure.status);
    BOOST_TEST((status == 0 || status == 65 || status == 66), i << ": " << failure.text);
  }
}

BOOST_AUTO_TEST_CASE(encoded_samples_are_read_by_their_offsets) {
  const TemporaryDirectory directory;
  const std::string path = directory / shard_name;
  const auto small = flat_jpeg({.height = 8, .width = 9, .channels = 3}, 10);
  const auto large = flat_jpeg({.height = 40, .width = 30, .channels = 1}, 200);
  write_encoded_shard(path, {small, large, small}, {});
  const ShardFile shard(path);
  RawSample sample;

  shard.read(1, sample);

  BOOST_TEST(shard.header().encoded);
  BOOST_TEST(shard.header().samples == 3);
  BOOST_TEST(sample.label == 1);
  BOOST_TEST(sample.bytes.size() == large.size());
  BOOST_TEST(verify_shard(path).samples == 3);
}

BOOST_AUTO_TEST_CASE(decreasing_or_out_of_range_offsets_are_refused) {
  const auto offsets = [](const std::vector<std::uint64_t>& values) {
    return verify({.images = dataset<std::uint8_t>("encoded", {9}, std::vector<std::uint8_t>(9)),
                   .rest = dataset<std::uint64_t>("offsets", {5}, values)});
  };
  expect(offsets({0, 3, 2, 8, 9}), "sample 1 takes bytes 3 to 2");
  expect(offsets({0, 3, 3, 8, 9}), "sample 1 takes bytes 3 to 3");
  expect(offsets({0, 3, 4, 8, 10}), "sample 3 takes bytes 8 to 10");
  expect(offsets({~std::uint64_t{0}, 3, 4, 8, 9}), "sample 0 takes bytes");
  expect(offsets({0, 3, 4, 8, 9}), "sample 0: not a whole JPEG file");
}
