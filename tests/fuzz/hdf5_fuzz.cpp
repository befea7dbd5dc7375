#include "io/hdf5_file.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include "fuzz.hpp"
#include "io/hdf5_node.hpp"

#include <filesystem>

namespace lockstep::fuzz {
namespace {

constexpr int max_objects = 200;
constexpr std::uint64_t max_values = std::uint64_t{1} << 20;

template <typename T>
void read_values_as(const h5::Object& file, const std::string& name) {
  accepts([&] {
    const std::vector<T> values = h5::read_values<T>(file, name, max_values);
    use(std::as_bytes(std::span(values)));
  });
}

void read_attributes(const h5::Object& object) {
  accepts([&] {
    for (const h5::StoredAttribute& attribute : object->attributes()) {
      accepts([&] { static_cast<void>(h5::read_number<std::int64_t>(object, attribute.name)); });
      accepts([&] { static_cast<void>(h5::read_floats(object, attribute.name)); });
      accepts([&] { static_cast<void>(h5::read_strings(object, attribute.name)); });
    }
  });
}

/// Reads all that a group holds, and counts it in `objects`.
void read_group(const h5::Object& file, const std::string& path, int& objects) {
  accepts([&] {
    for (const std::string& name : h5::children(file, path)) {
      if (++objects > max_objects) return;
      const std::string object = path + "/" + name;
      read_values_as<std::uint8_t>(file, object);
      read_values_as<std::int64_t>(file, object);
      read_values_as<float>(file, object);
      accepts([&] { read_attributes(h5::open_dataset(file, object)); });
      accepts([&] {
        read_attributes(h5::open_group(file, object));
        read_group(file, object, objects);
      });
    }
  });
}

}  // namespace

/// The bytes are a whole HDF5 file, for every reader of such files.
void run(Bytes bytes) {
  static const Scratch scratch;
  std::filesystem::create_directories(scratch.path());
  const std::string path = scratch.write("any.h5", bytes);
  accepts([&] {
    const h5::Object file = h5::open_file(path);
    read_attributes(file);
    int objects = 0;
    read_group(file, "", objects);
  });
  accepts([&] { static_cast<void>(verify_shard(path)); });
  for (const CheckpointUse use : {CheckpointUse::weights, CheckpointUse::resume}) {
    accepts([&] { static_cast<void>(read_checkpoint(path, use)); });
  }
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
