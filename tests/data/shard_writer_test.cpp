#include "data/shard_writer.hpp"
#include "io/hdf5_file.hpp"

#include "data/shard_fixture.hpp"
#include "lockstep/data/shard_file.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

const ShardAttributes attributes{.classes = 4, .class_names = {}, .mean = {0.5F}, .std = {0.2F}};

/// A shard as a packing leaves it before the attributes are known.
void write_unfinished(const TemporaryFile& file) {
  SourceInfo info;
  info.image = {.channels = 1, .height = 2, .width = 2};
  ShardWriter writer(file, info);
  for (std::int64_t label = 0; label < 4; ++label) {
    writer.append({.bytes = std::vector<std::byte>(4, std::byte{9}), .label = label});
  }
  writer.close();
}

/// The same datasets as the HDF5 library makes them when it is told `write`.
Failure finish_other(const std::function<void(const h5::File&)>& write) {
  const TemporaryDirectory directory;
  const TemporaryFile shard(directory / "a.h5");
  h5::File file = h5::create_file(shard.path(), shard.file());
  write(file);
  h5::close_written(std::move(file));
  return failure_of([&] { finish_shard(shard, attributes); });
}

const std::array<std::uint64_t, 4> dims{4, 2, 2, 1};
const std::array<std::uint64_t, 1> rows{4};

void images(const h5::File& file) {
  h5::write_dataset<std::uint8_t>(file, "images", dims, std::vector<std::uint8_t>(16, 9));
}
void labels(const h5::File& file) {
  h5::write_dataset<std::int64_t>(file, "labels", rows, std::vector<std::int64_t>(4));
}
void checksums(const h5::File& file) {
  h5::write_dataset<std::uint32_t>(file, "crc32c", rows, std::vector<std::uint32_t>(4));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_shard_of_this_packing_gets_its_attributes) {
  const TemporaryDirectory directory;
  TemporaryFile shard(directory / "a.h5");
  write_unfinished(shard);

  finish_shard(shard, attributes);
  shard.publish();

  const ShardHeader header = verify_shard(directory / "a.h5");
  BOOST_TEST(header.samples == 4);
  BOOST_TEST(header.classes.value() == 4);
  BOOST_TEST(header.std == attributes.std, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(samples_are_not_spooled_through_a_link) {
  const TemporaryDirectory directory;
  for (const char* name : {"unfinished", "precious"}) {
    std::filesystem::create_directory(directory / name);
  }
  const TemporaryFile shard(OpenDirectory(directory.path()) / "unfinished" / "a.h5");
  std::filesystem::rename(directory / "unfinished", directory / "moved");
  std::filesystem::create_directory_symlink("precious", directory / "unfinished");

  BOOST_TEST((failure_of([&] { write_unfinished(shard); }).status == ExitStatus::cannot_write));
}

BOOST_AUTO_TEST_CASE(the_library_never_opens_a_shard_of_another_writer) {
  const auto is_refused = [](const std::function<void(const h5::File&)>& write) {
    const Failure failure = finish_other(write);
    return failure.status == ExitStatus::bad_input &&
           failure.says("was not written by this packing");
  };

  BOOST_TEST(!finish_other([](const h5::File& file) {
                images(file);
                labels(file);
                checksums(file);
              }).says("was not written by this packing"));
  BOOST_TEST(is_refused([](const h5::File& file) {
    labels(file);
    images(file);
    checksums(file);
  }));
  BOOST_TEST(is_refused([](const h5::File& file) {
    images(file);
    labels(file);
    checksums(file);
    h5::write_number<std::int64_t>(file, "version", 1);
  }));
  BOOST_TEST(is_refused([](const h5::File& file) {
    images(file);
    labels(file);
    checksums(file);
    h5::write_dataset<std::uint8_t>(file, "more", rows, std::vector<std::uint8_t>(4));
  }));
}
