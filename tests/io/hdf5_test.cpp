#include <boost/test/unit_test.hpp>

#include "io/hdf5_file.hpp"
#include "io/temporary_directory.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <numeric>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

/// Predicate for BOOST_CHECK_EXCEPTION: the error has this status, and its text contains all words.
auto with(ExitStatus status, std::vector<std::string> words = {}) {
  return [status, words = std::move(words)](const Error& error) {
    const std::string text = error.what();
    BOOST_TEST_MESSAGE(text);
    for (const std::string& word : words) {
      if (text.find(word) == std::string::npos) {
        BOOST_TEST_MESSAGE("the text lacks: " << word);
        return false;
      }
    }
    return error.status() == status;
  };
}

void write_example(const std::string& path) {
  h5::File file = h5::create_file(path);
  std::vector<std::int32_t> values(12);
  std::iota(values.begin(), values.end(), -3);
  h5::write_dataset<std::int32_t>(file, "/numbers", std::array<std::uint64_t, 2>{4, 3}, values);
  const h5::Group group = h5::create_group(file, "/group");
  h5::write_dataset<float>(group, "zulu", std::array<std::uint64_t, 1>{1}, std::array{0.5F});
  h5::write_dataset<float>(group, "alpha", {}, std::array{2.5F});
  h5::write_number<std::int64_t>(group, "whole", -7);
  h5::write_number<std::uint64_t>(group, "large", UINT64_MAX);
  h5::write_number<std::uint32_t>(group, "sum", 0xFFFFFFFFu);
  h5::write_number<double>(group, "pi", 3.25);
  h5::write_string(group, "text",
                   "gr\xc3\xb6\xc3\x9f"
                   "er\nthan one line");
  h5::write_string(group, "empty", "");
  h5::write_strings(group, "names", std::vector<std::string>{"cat", "", "aeroplane"});
  h5::write_floats(group, "mean", std::array{0.25F, 0.75F});
  h5::close_written(std::move(file));
}

/// Creates a file with HDF5's C API, for content that the layer itself never writes.
template <typename Make>
void make_raw(const std::string& path, Make make) {
  const h5::File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  make(file.get());
}

void raw_dataset(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& dims,
                 hid_t creation = H5P_DEFAULT) {
  const h5::Dataspace space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
  const h5::Dataset dataset(
      H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, creation, H5P_DEFAULT));
  BOOST_REQUIRE(dataset);
}

}  // namespace

BOOST_AUTO_TEST_CASE(datasets_are_read_as_they_were_written) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");

  const h5::Object file = h5::open_file(directory / "a.h5");
  const auto values = h5::read_values<std::int64_t>(file, "/numbers", 12);
  const h5::DatasetInfo info = h5::describe(file, "/numbers");

  BOOST_TEST(values.front() == -3);
  BOOST_TEST(values.back() == 8);
  BOOST_TEST(h5::to_string(info) == "4x3 int32");
  BOOST_TEST(info.dims == (std::vector<std::uint64_t>{4, 3}), boost::test_tools::per_element());
  BOOST_TEST(static_cast<int>(info.layout) == static_cast<int>(h5::Layout::contiguous));
  BOOST_TEST(info.filters.empty());
  BOOST_TEST(h5::read_values<float>(file, "/group/alpha", 1)[0] == 2.5F);
}

BOOST_AUTO_TEST_CASE(the_offset_of_contiguous_values_locates_their_bytes) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");

  const auto info = h5::describe(h5::open_file(directory / "a.h5"), "/numbers");

  BOOST_REQUIRE(info.offset.has_value());
  const std::string bytes = read_file(directory / "a.h5");
  std::array<std::int32_t, 12> values{};
  std::memcpy(values.data(), bytes.data() + *info.offset, sizeof(values));
  BOOST_TEST(values[0] == -3);
  BOOST_TEST(values[11] == 8);
}

BOOST_AUTO_TEST_CASE(the_offset_includes_a_user_block) {
  const TemporaryDirectory directory;
  const std::string path = directory / "block.h5";
  {
    const h5::PropertyList creation(H5Pcreate(H5P_FILE_CREATE));
    H5Pset_userblock(creation.get(), 1024);
    const h5::File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), H5P_DEFAULT));
    h5::write_dataset<std::uint8_t>(file, "x", std::array<std::uint64_t, 1>{3},
                                    std::array<std::uint8_t, 3>{'l', 'k', 's'});
  }

  const auto info = h5::describe(h5::open_file(path), "x");

  BOOST_TEST(read_file(path).substr(info.offset.value(), 3) == "lks");
}

BOOST_AUTO_TEST_CASE(rows_are_read_and_written_in_pieces) {
  const TemporaryDirectory directory;
  {
    h5::File file = h5::create_file(directory / "r.h5");
    const auto dataset =
        h5::create_dataset<std::uint8_t>(file, "images", std::array<std::uint64_t, 3>{5, 2, 2});
    h5::write_rows<std::uint8_t>(dataset, 0, 2, std::vector<std::uint8_t>(8, 1));
    h5::write_rows<std::uint8_t>(dataset, 2, 3, std::vector<std::uint8_t>(12, 9));
    h5::close_written(std::move(file));
  }
  const h5::Object file = h5::open_file(directory / "r.h5");
  const auto dataset = h5::open_dataset(file, "images");
  std::vector<std::uint8_t> rows(8);

  h5::read_rows<std::uint8_t>(dataset, 1, 2, rows);

  BOOST_TEST(rows == (std::vector<std::uint8_t>{1, 1, 1, 1, 9, 9, 9, 9}),
             boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(h5::read_rows<std::uint8_t>(dataset, 4, 2, rows), Error,
                        with(ExitStatus::bad_input, {"images", "5 rows"}));
  BOOST_CHECK_EXCEPTION(h5::read_rows<std::uint8_t>(dataset, UINT64_MAX, 2, rows), Error,
                        with(ExitStatus::bad_input));
  BOOST_CHECK_EXCEPTION(h5::read_rows<std::uint8_t>(dataset, 0, 1, rows), Error,
                        with(ExitStatus::bad_input));
}

BOOST_AUTO_TEST_CASE(attributes_are_read_as_they_were_written) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  const h5::Object file = h5::open_file(directory / "a.h5");

  const h5::Object group = h5::open_group(file, "/group");

  BOOST_TEST(h5::read_number<std::int64_t>(group, "whole").value() == -7);
  BOOST_TEST(h5::read_number<std::uint64_t>(group, "large").value() == UINT64_MAX);
  BOOST_TEST(h5::read_number<std::uint32_t>(group, "sum").value() == 0xFFFFFFFFu);
  BOOST_TEST(h5::read_number<double>(group, "pi").value() == 3.25);
  BOOST_TEST(h5::read_string(group, "text").value() ==
             "gr\xc3\xb6\xc3\x9f"
             "er\nthan one line");
  BOOST_TEST(h5::read_string(group, "empty").value().empty());
  BOOST_TEST(h5::read_strings(group, "names").value() ==
                 (std::vector<std::string>{"cat", "", "aeroplane"}),
             boost::test_tools::per_element());
  BOOST_TEST(h5::read_floats(group, "mean").value() == (std::vector<float>{0.25F, 0.75F}),
             boost::test_tools::per_element());
  BOOST_TEST(!h5::read_number<std::int64_t>(group, "absent").has_value());
}

BOOST_AUTO_TEST_CASE(an_attribute_without_values_is_read_as_such) {
  const TemporaryDirectory directory;
  h5::File file = h5::create_file(directory / "a.h5");
  h5::write_floats(file, "mean", {});
  h5::close_written(std::move(file));

  const auto read = h5::read_floats(h5::open_file(directory / "a.h5"), "mean");

  BOOST_TEST((read.has_value() && read->empty()));
}

BOOST_AUTO_TEST_CASE(wrong_attribute_types_are_refused_by_name) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  const h5::Object file = h5::open_file(directory / "a.h5");
  const h5::Object group = h5::open_group(file, "/group");

  BOOST_CHECK_EXCEPTION(
      static_cast<void>(h5::read_number<std::int64_t>(group, "text")), Error,
      with(ExitStatus::bad_input, {"attribute text", "a.h5:/group", "an integer"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::read_string(group, "whole")), Error,
                        with(ExitStatus::bad_input, {"int64", "not text"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::read_number<double>(group, "mean")), Error,
                        with(ExitStatus::bad_input, {"2 values"}));
}

BOOST_AUTO_TEST_CASE(strings_of_variable_length_are_read) {
  const TemporaryDirectory directory;
  const std::string path = directory / "v.h5";
  make_raw(path, [](hid_t file) {
    const h5::Datatype type(H5Tcopy(H5T_C_S1));
    H5Tset_size(type.get(), H5T_VARIABLE);
    const hsize_t two = 2;
    const h5::Dataspace space(H5Screate_simple(1, &two, nullptr));
    const h5::Attribute attribute(
        H5Acreate2(file, "names", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
    const std::array<const char*, 2> names{"ship", "truck"};
    H5Awrite(attribute.get(), type.get(), names.data());
  });

  const auto names = h5::read_strings(h5::open_file(path), "names");

  BOOST_TEST(names.value() == (std::vector<std::string>{"ship", "truck"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(children_are_listed_in_the_order_of_their_creation) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  const h5::Object file = h5::open_file(directory / "a.h5");

  BOOST_TEST(h5::children(file, "/group") == (std::vector<std::string>{"zulu", "alpha"}),
             boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::children(file, "/group", 1)), Error,
                        with(ExitStatus::bad_input, {"more than 1"}));
  BOOST_TEST(h5::exists(file, "/group/alpha"));
  BOOST_TEST(!h5::exists(file, "/group/beta"));
  BOOST_TEST(!h5::exists(file, "/no/such/group"));
}

BOOST_AUTO_TEST_CASE(an_absent_file_is_no_input_and_a_wrong_one_bad_input) {
  const TemporaryDirectory directory;
  write_file(directory / "text.h5", "this is no HDF5 file\n");
  write_file(directory / "empty.h5", "");
  BOOST_REQUIRE(::mkfifo((directory / "pipe.h5").c_str(), 0600) == 0);

  const auto open = [&](const std::string& name) {
    static_cast<void>(h5::open_file(directory / name));
  };

  BOOST_CHECK_EXCEPTION(open("absent.h5"), Error,
                        with(ExitStatus::no_input, {"absent.h5", "No such file"}));
  BOOST_CHECK_EXCEPTION(open("text.h5"), Error,
                        with(ExitStatus::bad_input, {"text.h5", "21 bytes"}));
  BOOST_CHECK_EXCEPTION(open("empty.h5"), Error, with(ExitStatus::bad_input));
  BOOST_CHECK_EXCEPTION(open("pipe.h5"), Error, with(ExitStatus::bad_input, {"is a FIFO"}));
  BOOST_CHECK_EXCEPTION(open("."), Error, with(ExitStatus::bad_input, {"directory"}));
}

BOOST_AUTO_TEST_CASE(a_file_cut_anywhere_is_bad_input) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  const std::string bytes = read_file(directory / "a.h5");

  for (std::size_t length = 0; length < bytes.size(); length += 97) {
    write_file(directory / "cut.h5", bytes.substr(0, length));
    BOOST_CHECK_EXCEPTION(static_cast<void>(h5::open_file(directory / "cut.h5")), Error,
                          with(ExitStatus::bad_input, {"cut.h5"}));
  }
}

BOOST_AUTO_TEST_CASE(shapes_without_data_in_the_file_are_refused) {
  const TemporaryDirectory directory;
  const std::string path = directory / "huge.h5";
  make_raw(path, [](hid_t file) {
    const h5::PropertyList late(H5Pcreate(H5P_DATASET_CREATE));
    const hsize_t chunk = 16;
    H5Pset_chunk(late.get(), 1, &chunk);
    raw_dataset(file, "chunked", H5T_IEEE_F32LE, {hsize_t{1} << 40}, late.get());
    raw_dataset(file, "unwritten", H5T_IEEE_F32LE, {1000});
    const h5::PropertyList deep(H5Pcreate(H5P_DATASET_CREATE));
    const std::array<hsize_t, 3> chunks{1, 1, 1};
    H5Pset_chunk(deep.get(), 3, chunks.data());
    raw_dataset(file, "overflow", H5T_IEEE_F64LE, {hsize_t{1} << 31, hsize_t{1} << 30, 0},
                deep.get());
  });
  const h5::Object file = h5::open_file(path);

  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::read_values<float>(file, "chunked", 1000)), Error,
                        with(ExitStatus::bad_input, {"huge.h5:/chunked", "more than 1000"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::read_values<float>(file, "chunked", UINT64_MAX)),
                        Error, with(ExitStatus::bad_input, {"not in the file"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::read_values<float>(file, "unwritten", 1000)), Error,
                        with(ExitStatus::bad_input, {"unwritten", "never filled"}));
  BOOST_TEST(!h5::describe(file, "unwritten").offset.has_value());
  BOOST_TEST(h5::describe(file, "overflow").elements == 0u);
}

BOOST_AUTO_TEST_CASE(wrong_classes_and_missing_datasets_are_refused_by_name) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  const h5::Object file = h5::open_file(directory / "a.h5");

  BOOST_CHECK_EXCEPTION(
      static_cast<void>(h5::read_values<float>(file, "/numbers", 99)), Error,
      with(ExitStatus::bad_input, {"a.h5:/numbers", "4x3 int32", "floating point"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::describe(file, "/labels")), Error,
                        with(ExitStatus::bad_input, {"a.h5:/labels", "missing"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::describe(file, "/group")), Error,
                        with(ExitStatus::bad_input, {"a.h5:/group", "not a dataset"}));
}

BOOST_AUTO_TEST_CASE(the_same_calls_give_the_same_bytes) {
  const TemporaryDirectory directory;
  write_example(directory / "a.h5");
  ::sleep(1);  // object times have a resolution of a second
  write_example(directory / "b.h5");

  BOOST_TEST((read_file(directory / "a.h5") == read_file(directory / "b.h5")));
}

BOOST_AUTO_TEST_CASE(the_error_of_a_file_that_cannot_be_created_has_the_reason) {
  const TemporaryDirectory directory;

  BOOST_CHECK_EXCEPTION(static_cast<void>(h5::create_file(directory / "no/such.h5")), Error,
                        with(ExitStatus::cannot_write, {"no/such.h5", "No such file"}));
}

BOOST_AUTO_TEST_CASE(a_file_opened_for_update_keeps_its_content) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a.h5";
  write_example(path);
  const std::vector<std::string> before = h5::children(h5::open_file(path), "/");

  const Descriptor descriptor = FilePath(path).open(O_RDWR);
  h5::File file = h5::open_for_update(path, descriptor);
  h5::write_number<std::int64_t>(file, "added", 7);
  h5::close_written(std::move(file));

  const h5::Object read = h5::open_file(path);
  BOOST_TEST((h5::read_number<std::int64_t>(read, "added") == 7));
  BOOST_TEST((h5::children(read, "/") == before));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_open_is_written_whatever_its_name_leads_to) {
  const TemporaryDirectory directory;
  write_file(directory / "victim", "kept");
  write_example(directory / "expected.h5");
  const Descriptor file = FilePath(directory / "a.h5").open(O_RDWR | O_CREAT | O_EXCL, 0666);
  std::filesystem::rename(directory / "a.h5", directory / "moved.h5");
  write_file(directory / "a.h5", "another's");

  h5::close_written(h5::create_file(directory / "a.h5", file));

  BOOST_TEST(read_file(directory / "a.h5") == "another's");
  BOOST_TEST(h5::children(h5::open_file(directory / "moved.h5"), "/").empty());
}

BOOST_AUTO_TEST_CASE(chunked_and_compressed_data_are_described) {
  const TemporaryDirectory directory;
  const std::string path = directory / "z.h5";
  make_raw(path, [](hid_t file) {
    const h5::PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
    const hsize_t chunk = 8;
    H5Pset_chunk(creation.get(), 1, &chunk);
    H5Pset_deflate(creation.get(), 6);
    raw_dataset(file, "z", H5T_STD_I16BE, {64}, creation.get());
  });

  const h5::DatasetInfo info = h5::describe(h5::open_file(path), "z");

  BOOST_TEST(static_cast<int>(info.layout) == static_cast<int>(h5::Layout::chunked));
  BOOST_TEST(info.filters == (std::vector<std::string>{"deflate"}),
             boost::test_tools::per_element());
  BOOST_TEST(h5::to_string(info) == "64 int16 big-endian");
  BOOST_TEST(!info.offset.has_value());
}
