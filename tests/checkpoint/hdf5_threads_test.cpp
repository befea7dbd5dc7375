#include <boost/test/unit_test.hpp>

#include "checkpoint/example_checkpoint.hpp"
#include "data/shard_fixture.hpp"
#include "io/hdf5_file.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/loader.hpp"

#include <dlfcn.h>
#include <hdf5.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::atomic<int> inside = 0;       // threads in the library
std::atomic<int> most_inside = 0;  // largest number of them
std::atomic<int> calls = 0;
thread_local int depth = 0;

/// Counts a thread as in the library, long enough for other threads to enter if nothing prevents
/// it.
class InLibrary final {
 public:
  InLibrary() {
    if (depth++ > 0) return;
    ++calls;
    const int now = ++inside;
    int most = most_inside;
    while (now > most && !most_inside.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  InLibrary(const InLibrary&) = delete;
  InLibrary& operator=(const InLibrary&) = delete;
  ~InLibrary() {
    if (--depth == 0) --inside;
  }
};

template <typename Result, typename... Parameters>
Result forward(const char* name, Parameters... values) {
  const InLibrary in_library;
  return reinterpret_cast<Result (*)(Parameters...)>(dlsym(RTLD_NEXT, name))(values...);
}

}  // namespace

// The library's functions, intercepted where the program calls them, before any lock of the
// library.
extern "C" {

hid_t H5Fcreate(const char* name, unsigned flags, hid_t creation, hid_t access) {
  return forward<hid_t>("H5Fcreate", name, flags, creation, access);
}
herr_t H5Fflush(hid_t object, H5F_scope_t scope) {
  return forward<herr_t>("H5Fflush", object, scope);
}
herr_t H5Fclose(hid_t file) {
  return forward<herr_t>("H5Fclose", file);
}
hid_t H5Gcreate2(hid_t at, const char* name, hid_t link, hid_t creation, hid_t access) {
  return forward<hid_t>("H5Gcreate2", at, name, link, creation, access);
}
herr_t H5Gclose(hid_t group) {
  return forward<herr_t>("H5Gclose", group);
}
hid_t H5Dget_space(hid_t dataset) {
  return forward<hid_t>("H5Dget_space", dataset);
}
herr_t H5Dwrite(hid_t dataset, hid_t type, hid_t memory, hid_t file, hid_t transfer,
                const void* values) {
  return forward<herr_t>("H5Dwrite", dataset, type, memory, file, transfer, values);
}
herr_t H5Dclose(hid_t dataset) {
  return forward<herr_t>("H5Dclose", dataset);
}
herr_t H5Sclose(hid_t space) {
  return forward<herr_t>("H5Sclose", space);
}
herr_t H5Tclose(hid_t type) {
  return forward<herr_t>("H5Tclose", type);
}
hid_t H5Acreate2(hid_t at, const char* name, hid_t type, hid_t space, hid_t creation,
                 hid_t access) {
  return forward<hid_t>("H5Acreate2", at, name, type, space, creation, access);
}
herr_t H5Awrite(hid_t attribute, hid_t type, const void* value) {
  return forward<herr_t>("H5Awrite", attribute, type, value);
}
herr_t H5Aclose(hid_t attribute) {
  return forward<herr_t>("H5Aclose", attribute);
}
herr_t H5Eset_auto2(hid_t stack, H5E_auto2_t function, void* data) {
  return forward<herr_t>("H5Eset_auto2", stack, function, data);
}
herr_t H5Eclear2(hid_t stack) {
  return forward<herr_t>("H5Eclear2", stack);
}

}  // extern "C"

namespace {

constexpr std::uint64_t samples = 24;

/// A chunked shard, which is read by our reader, without the library.
void write_chunked_shard(const std::string& path) {
  h5::File file = h5::create_file(path);
  const std::array<hsize_t, 4> dims{samples, 6, 5, 3};
  const std::array<hsize_t, 4> chunk{1, 6, 5, 3};
  const h5::PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  BOOST_REQUIRE(H5Pset_chunk(creation.get(), 4, chunk.data()) >= 0);
  const h5::Dataspace space(H5Screate_simple(4, dims.data(), nullptr));
  const h5::Dataset images(H5Dcreate2(file.get(), "images", H5T_STD_U8LE, space.get(), H5P_DEFAULT,
                                      creation.get(), H5P_DEFAULT));
  const std::vector<std::uint8_t> pixels(samples * 90, 7);
  h5::write_rows<std::uint8_t>(images, 0, samples, pixels);
  const std::array<std::uint64_t, 1> rows{samples};
  h5::write_dataset<std::int64_t>(file, "labels", rows, std::vector<std::int64_t>(samples, 2));
  write_attributes(file, {});
  h5::close_written(std::move(file));
}

LoaderOptions options_for(const Dataset& dataset) {
  return {.image = {.channels = 3, .height = 6, .width = 5},
          .format = {.layout = ImageLayout::nchw},
          .mean = dataset.info().mean,
          .std = dataset.info().std,
          .batch_capacity = 4,
          .threads = 4};
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_thread_at_a_time_is_in_the_library_and_no_reader) {
  const TemporaryDirectory directory;
  write_chunked_shard(directory / "train-00000-of-00002.h5");
  write_chunked_shard(directory / "train-00001-of-00002.h5");
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  calls = 0;
  static_cast<void>(open_dataset(directory.path(), "train", *comm));
  BOOST_TEST(calls == 0, "reading called the library");

  const auto loader = make_loader(
      *dataset, options_for(*dataset), [](std::int64_t n) -> std::optional<BatchRequest> {
        if (n == 24) return std::nullopt;
        return BatchRequest{.epoch = n / 12, .first = n % 12 * 4, .count = 4};
      });
  const auto save = [&](const std::string& name) {
    for (int i = 0; i < 3; ++i) write_checkpoint(directory / name, example_checkpoint());
  };
  std::thread saver(save, "step-1.h5");
  std::thread other(save, "step-2.h5");
  std::int64_t loaded = 0;
  while (const auto batch = loader->next()) {
    for (std::int64_t i = 0; i < batch->batch.size; ++i)
      BOOST_TEST(batch->batch.targets.labels[i] == 2);
    loaded += batch->batch.size;
  }
  saver.join();
  other.join();

  BOOST_TEST(loaded == 96);
  BOOST_TEST(calls > 200, "only " << calls << " calls were seen");
  BOOST_TEST(most_inside == 1);
}
