#include <boost/test/unit_test.hpp>

#include "io/hdf5_file.hpp"
#include "io/temporary_directory.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

// The reader beside the HDF5 library, which writes each file and reads it back.

using namespace lockstep;
using test::TemporaryDirectory;

namespace {

constexpr hsize_t endless = H5S_UNLIMITED;

/// A dataset as the library is told to write it.
struct Case {
  std::string name;
  H5F_libver_t version;
  std::vector<hsize_t> dims;
  std::vector<hsize_t> max_dims = {};  ///< empty: `dims`
  std::vector<hsize_t> chunk = {};     ///< empty: not chunked
  std::vector<int> filters = {};       ///< of HDF5, in order
  bool compact = false;
  hid_t type = H5T_STD_I32LE;
};

hid_t open_for_writing(const std::string& path, H5F_libver_t version) {
  const h5::PropertyList access(H5Pcreate(H5P_FILE_ACCESS));
  BOOST_REQUIRE(H5Pset_libver_bounds(access.get(), version, H5F_LIBVER_LATEST) >= 0);
  return H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
}

h5::PropertyList creation_of(const Case& wanted) {
  h5::PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  if (wanted.compact) H5Pset_layout(creation.get(), H5D_COMPACT);
  if (!wanted.chunk.empty()) {
    H5Pset_chunk(creation.get(), static_cast<int>(wanted.chunk.size()), wanted.chunk.data());
  }
  for (const int filter : wanted.filters) {
    if (filter == H5Z_FILTER_DEFLATE) H5Pset_deflate(creation.get(), 6);
    if (filter == H5Z_FILTER_SHUFFLE) H5Pset_shuffle(creation.get());
    if (filter == H5Z_FILTER_FLETCHER32) H5Pset_fletcher32(creation.get());
  }
  return creation;
}

/// Writes random values, which the type may clamp, and returns them as the library reads them.
std::vector<std::int64_t> write_case(const std::string& path, const Case& wanted) {
  const h5::File file(open_for_writing(path, wanted.version));
  BOOST_REQUIRE(file);
  const h5::Dataspace space(
      H5Screate_simple(static_cast<int>(wanted.dims.size()), wanted.dims.data(),
                       wanted.max_dims.empty() ? nullptr : wanted.max_dims.data()));
  const h5::PropertyList creation = creation_of(wanted);
  const h5::Dataset dataset(H5Dcreate2(file.get(), "x", wanted.type, space.get(), H5P_DEFAULT,
                                       creation.get(), H5P_DEFAULT));
  BOOST_REQUIRE(dataset);
  std::vector<std::int64_t> values(
      static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  std::mt19937_64 random(values.size());
  for (std::int64_t& value : values) value = static_cast<std::int64_t>(random() % 60'000) - 20'000;
  BOOST_REQUIRE(
      H5Dwrite(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  BOOST_REQUIRE(
      H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  return values;
}

void check_case(const Case& wanted) {
  BOOST_TEST_CONTEXT(wanted.name << ", library version " << wanted.version) {
    const TemporaryDirectory directory;
    const std::vector<std::int64_t> expected = write_case(directory / "a.h5", wanted);

    const h5::Object file = h5::open_file(directory / "a.h5");

    BOOST_TEST((h5::read_values<std::int64_t>(file, "x", expected.size()) == expected));
    const h5::Object dataset = h5::open_dataset(file, "x");
    const std::uint64_t rows = wanted.dims[0];
    const std::size_t row = expected.size() / rows;
    for (std::uint64_t first = 0; first < rows; first += rows / 3 + 1) {
      const std::uint64_t count = std::min<std::uint64_t>(rows - first, 2);
      std::vector<std::int64_t> part(count * row);
      h5::read_rows<std::int64_t>(dataset, first, count, part);
      BOOST_TEST(std::equal(part.begin(), part.end(),
                            expected.begin() + static_cast<std::ptrdiff_t>(first * row)));
    }
  }
}

constexpr std::array versions{H5F_LIBVER_EARLIEST, H5F_LIBVER_V18, H5F_LIBVER_LATEST};

}  // namespace

BOOST_AUTO_TEST_CASE(every_layout_gives_the_values_that_the_library_reads) {
  const std::vector<std::vector<int>> filters{
      {},
      {H5Z_FILTER_DEFLATE},
      {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE},
      {H5Z_FILTER_FLETCHER32},
      {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32},
      {H5Z_FILTER_FLETCHER32, H5Z_FILTER_DEFLATE}};
  for (const H5F_libver_t version : versions) {
    check_case({.name = "contiguous", .version = version, .dims = {7, 3, 5}});
    check_case({.name = "compact", .version = version, .dims = {7, 3, 5}, .compact = true});
    for (const auto& filter : filters) {
      const std::string with = std::to_string(filter.size()) + " filters";
      check_case({.name = "one chunk, " + with,
                  .version = version,
                  .dims = {6, 4},
                  .chunk = {6, 4},
                  .filters = filter});
      check_case({.name = "rows, " + with,
                  .version = version,
                  .dims = {37, 4, 3},
                  .chunk = {5, 4, 3},
                  .filters = filter});
      check_case({.name = "tiles, " + with,
                  .version = version,
                  .dims = {10, 9, 7, 3},
                  .chunk = {3, 4, 5, 2},
                  .filters = filter});
      check_case({.name = "room to grow, " + with,
                  .version = version,
                  .dims = {10, 9},
                  .max_dims = {40, 31},
                  .chunk = {3, 4},
                  .filters = filter});
      check_case({.name = "endless rows, " + with,
                  .version = version,
                  .dims = {500, 9},
                  .max_dims = {endless, 9},
                  .chunk = {1, 4},
                  .filters = filter});
      check_case({.name = "endless columns, " + with,
                  .version = version,
                  .dims = {10, 90},
                  .max_dims = {12, endless},
                  .chunk = {3, 4},
                  .filters = filter});
      check_case({.name = "endless, " + with,
                  .version = version,
                  .dims = {50, 30},
                  .max_dims = {endless, endless},
                  .chunk = {3, 4},
                  .filters = filter});
    }
  }
}

BOOST_AUTO_TEST_CASE(indices_of_many_chunks_give_all_of_them) {
  for (const H5F_libver_t version : versions) {
    for (const bool is_filtered : {false, true}) {
      const std::vector<int> filters =
          is_filtered ? std::vector<int>{H5Z_FILTER_FLETCHER32} : std::vector<int>{};
      // Pages of a fixed array have 1024 chunks.
      for (const hsize_t rows : {1023, 1024, 1025, 5000}) {
        check_case({.name = "fixed",
                    .version = version,
                    .dims = {rows, 2},
                    .chunk = {1, 2},
                    .filters = filters});
        check_case({.name = "endless rows",
                    .version = version,
                    .dims = {rows, 2},
                    .max_dims = {endless, 2},
                    .chunk = {1, 2},
                    .filters = filters});
        check_case({.name = "endless",
                    .version = version,
                    .dims = {rows, 4},
                    .max_dims = {endless, endless},
                    .chunk = {1, 2},
                    .filters = filters});
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_type_of_numbers_is_converted_as_by_the_library) {
  for (const hid_t type : {H5T_STD_I8LE, H5T_STD_U8BE, H5T_STD_I16BE, H5T_STD_U16LE, H5T_STD_I32BE,
                           H5T_STD_U32LE, H5T_STD_I64BE, H5T_STD_U64LE}) {
    check_case({.name = "contiguous", .version = H5F_LIBVER_EARLIEST, .dims = {40}, .type = type});
    check_case({.name = "chunked",
                .version = H5F_LIBVER_LATEST,
                .dims = {40},
                .chunk = {7},
                .filters = {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE},
                .type = type});
  }
}

BOOST_AUTO_TEST_CASE(floats_of_any_order_and_size_are_read) {
  const TemporaryDirectory directory;
  const std::vector<double> expected{0.0, -1.5, 3.25, 1e-3, 65504.0};
  h5::Datatype half(H5Tcopy(H5T_IEEE_F32LE));
  H5Tset_fields(half.get(), 15, 10, 5, 0, 10);
  H5Tset_ebias(half.get(), 15);
  H5Tset_precision(half.get(), 16);
  H5Tset_size(half.get(), 2);
  for (const hid_t type :
       {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, half.get()}) {
    std::vector<double> library(expected.size());
    {
      const h5::File file(open_for_writing(directory / "a.h5", H5F_LIBVER_EARLIEST));
      const hsize_t size = expected.size();
      const h5::Dataspace space(H5Screate_simple(1, &size, nullptr));
      const h5::Dataset dataset(
          H5Dcreate2(file.get(), "x", type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      H5Dwrite(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected.data());
      H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, library.data());
    }

    const h5::Object file = h5::open_file(directory / "a.h5");

    BOOST_TEST((h5::read_values<double>(file, "x", 5) == library));
    BOOST_TEST(h5::read_values<float>(file, "x", 5)[1] == -1.5F);
  }
}

BOOST_AUTO_TEST_CASE(groups_of_any_size_are_listed) {
  const TemporaryDirectory directory;
  for (const H5F_libver_t version : versions) {
    for (const int count : {0, 1, 8, 9, 200, 3000}) {
      std::vector<std::string> sorted;
      {
        const h5::File file(open_for_writing(directory / "a.h5", version));
        const h5::Group group(H5Gcreate2(file.get(), "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        for (int i = 0; i < count; ++i) {
          sorted.push_back("layer." + std::to_string(i * 7919 % 3001) + std::string(i % 40, 'w'));
          const h5::Group child(H5Gcreate2(group.get(), sorted.back().c_str(), H5P_DEFAULT,
                                           H5P_DEFAULT, H5P_DEFAULT));
        }
      }
      std::ranges::sort(sorted);

      const h5::Object file = h5::open_file(directory / "a.h5");

      BOOST_TEST((h5::children(file, "g") == sorted), version << " with " << count);
      for (const std::string& name : sorted) BOOST_REQUIRE(h5::exists(file, "/g/" + name));
      BOOST_TEST(!h5::exists(file, "/g/layer"));
    }
  }
}

BOOST_AUTO_TEST_CASE(attributes_of_any_number_and_size_are_read) {
  const TemporaryDirectory directory;
  for (const H5F_libver_t version : versions) {
    for (const int count : {1, 8, 9, 300}) {
      // The old format holds at most 64 KiB.
      const std::size_t longest = version == H5F_LIBVER_EARLIEST ? 900 : 90'000;
      const auto text_of = [&](int i) {
        return std::string(1 + static_cast<std::size_t>(i) * longest / 300,
                           static_cast<char>('a' + i % 26));
      };
      {
        const h5::File file(open_for_writing(directory / "a.h5", version));
        for (int i = 0; i < count; ++i) {
          h5::write_string(file, "text" + std::to_string(i), text_of(i));
          h5::write_number<std::int64_t>(file, "number" + std::to_string(i), i);
        }
      }

      const h5::Object file = h5::open_file(directory / "a.h5");

      for (int i = 0; i < count; ++i) {
        BOOST_REQUIRE((h5::read_string(file, "text" + std::to_string(i)) == text_of(i)));
        BOOST_REQUIRE((h5::read_number<std::int64_t>(file, "number" + std::to_string(i)) == i));
      }
      BOOST_TEST(!h5::has_attribute(file, "text"));
    }
  }
}

BOOST_AUTO_TEST_CASE(many_texts_of_variable_length_are_read) {
  const TemporaryDirectory directory;
  std::vector<std::string> names;
  for (int i = 0; i < 4000; ++i) names.push_back(std::string(i % 60, 'n') + std::to_string(i));
  for (const H5F_libver_t version : versions) {
    {
      const h5::File file(open_for_writing(directory / "a.h5", version));
      const h5::Datatype type(H5Tcopy(H5T_C_S1));
      H5Tset_size(type.get(), H5T_VARIABLE);
      const hsize_t size = names.size();
      const h5::Dataspace space(H5Screate_simple(1, &size, nullptr));
      const h5::Attribute attribute(
          H5Acreate2(file.get(), "names", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
      std::vector<const char*> pointers;
      for (const std::string& name : names) pointers.push_back(name.c_str());
      if (!attribute) continue;  // the old format holds at most 64 KiB
      BOOST_REQUIRE(H5Awrite(attribute.get(), type.get(), pointers.data()) >= 0);
    }

    BOOST_TEST((h5::read_strings(h5::open_file(directory / "a.h5"), "names") == names));
  }
}
