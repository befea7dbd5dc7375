#include <boost/test/unit_test.hpp>

#include "checkpoint/example_checkpoint.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

// HDF5 1.10 leaks memory when it refuses a damaged file. LeakSanitizer reads this if it is enabled.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5";
}

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The error's text, or nullopt if the file is accepted. Checks that the status is bad_input.
std::optional<std::string> refusal(const std::string& path, CheckpointUse use,
                                   Checkpoint* read = nullptr) {
  try {
    Checkpoint checkpoint = read_checkpoint(path, use);
    if (read != nullptr) *read = std::move(checkpoint);
    return std::nullopt;
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == static_cast<int>(ExitStatus::bad_input),
               error.what());
    return error.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_flipped_bit_in_a_tensor_is_refused_by_its_name) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());
  const std::string bytes = read_file(directory / "a.h5");

  for (const std::string object :
       {"/model/stem.weight", "/model/fc.weight", "/optimizer/momentum/stem.weight",
        "/optimizer/exp_avg/fc.weight"}) {
    const h5::DatasetInfo info = h5::describe(h5::open_file(directory / "a.h5"), object);
    const std::uint64_t size = info.elements * info.element.size;
    for (const std::uint64_t byte : {std::uint64_t{0}, size / 2, size - 1}) {
      std::string damaged = bytes;
      damaged[info.offset.value() + byte] ^= 0x04;
      write_file(directory / "b.h5", damaged);
      const auto text = refusal(directory / "b.h5", CheckpointUse::resume);
      BOOST_REQUIRE(text.has_value());
      BOOST_TEST(text->find("b.h5:" + object + " is damaged") != std::string::npos, *text);
      BOOST_TEST(refusal(directory / "b.h5", CheckpointUse::weights).has_value());
      BOOST_CHECK_THROW(CheckpointReader(directory / "b.h5", CheckpointUse::resume).verify(),
                        Error);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_anywhere_never_changes_what_is_read) {
  const TemporaryDirectory directory;
  const Checkpoint original = example_checkpoint();
  write_checkpoint(directory / "a.h5", original);
  const std::string bytes = read_file(directory / "a.h5");
  PhiloxStream random(1, RandomPurpose::synthetic_data, 0, 0);
  int refused = 0;
  int harmless = 0;

  for (std::size_t i = 0; i < bytes.size(); i += 1 + random.next_below(24)) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << random.next_below(8)));
    write_file(directory / "b.h5", damaged);
    Checkpoint read;
    if (refusal(directory / "b.h5", CheckpointUse::resume, &read)) {
      ++refused;
    } else {
      ++harmless;
      BOOST_TEST((read == original), "byte " << i << " of " << bytes.size());
    }
  }

  // The harmless bits are in gaps between objects.
  BOOST_TEST_MESSAGE(refused << " refused, " << harmless << " harmless, " << bytes.size()
                             << " bytes");
  BOOST_TEST(refused > 3 * harmless);
}

BOOST_AUTO_TEST_CASE(a_file_cut_anywhere_is_refused) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());
  const std::string bytes = read_file(directory / "a.h5");

  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 40) {
    write_file(directory / "b.h5", bytes.substr(0, length));
    BOOST_TEST(refusal(directory / "b.h5", CheckpointUse::resume).has_value(), "length " << length);
    BOOST_TEST(refusal(directory / "b.h5", CheckpointUse::weights).has_value(),
               "length " << length);
  }
}

BOOST_AUTO_TEST_CASE(noise_over_any_region_never_crashes) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());
  const std::string bytes = read_file(directory / "a.h5");
  PhiloxStream random(2, RandomPurpose::synthetic_data, 0, 0);

  for (int round = 0; round < 500; ++round) {
    std::string damaged = bytes;
    const std::size_t begin = random.next_below(static_cast<std::uint32_t>(bytes.size()));
    const std::size_t end = std::min<std::size_t>(bytes.size(), begin + 1 + random.next_below(64));
    for (std::size_t i = begin; i < end; ++i) damaged[i] = static_cast<char>(random.next_u32());
    write_file(directory / "b.h5", damaged);
    Checkpoint read;
    if (!refusal(directory / "b.h5", CheckpointUse::resume, &read)) {
      BOOST_TEST((read == example_checkpoint()));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_changed_attribute_or_a_missing_checksum_is_refused_by_name) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a.h5";
  const auto change = [&](auto edit) {
    write_checkpoint(path, example_checkpoint());
    const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    edit(file);
  };
  const auto expect = [&](const std::string& words) {
    const auto text = refusal(path, CheckpointUse::resume);
    BOOST_REQUIRE(text.has_value());
    BOOST_TEST(text->find(words) != std::string::npos, *text);
  };

  change([](const h5::File& file) {
    const h5::Group state(H5Gopen2(file.get(), "/state", H5P_DEFAULT));
    H5Adelete(state.get(), "step");
    h5::write_number<std::int64_t>(state, "step", 13);
  });
  expect("a.h5:/state is damaged");
  change(
      [](const h5::File& file) { H5Adelete_by_name(file.get(), "/state", "seed", H5P_DEFAULT); });
  expect("/state has no attribute seed");
  for (const char* optional : {"convolutions", "all_reduce", "backend"}) {
    change([optional](const h5::File& file) {
      H5Adelete_by_name(file.get(), "/state", optional, H5P_DEFAULT);
    });
    expect("a.h5:/state is damaged");
  }
  change([](const h5::File& file) {
    H5Adelete_by_name(file.get(), "/model/fc.weight", "crc32c", H5P_DEFAULT);
  });
  expect("/model/fc.weight has no crc32c");
  change([](const h5::File& file) { H5Ldelete(file.get(), "/optimizer", H5P_DEFAULT); });
  expect("no group /optimizer");
  change([](const h5::File& file) {
    H5Adelete(file.get(), "image_height");
    h5::write_number<std::int64_t>(file, "image_height", 0);
  });
  expect("a.h5 says that its images are 3x0x48");
}
