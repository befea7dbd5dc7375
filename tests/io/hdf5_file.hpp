#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

/// Whole files and data sets, as tests make and read them.
namespace lockstep::h5 {

[[nodiscard]] inline File create_file(const std::string& path) {
  const Descriptor file = FilePath(path).open(O_RDWR | O_CREAT | O_TRUNC, 0666);
  if (!file) fail(ExitStatus::cannot_write, "cannot create {} ({})", path, std::strerror(errno));
  return create_file(path, file);
}

/// Creates and fills a dataset. Without axes it is a scalar.
template <typename T>
Dataset write_dataset(Location location, const std::string& name,
                      std::span<const std::uint64_t> dims, std::span<const T> values) {
  Dataset dataset = create_dataset<T>(location, name, dims);
  write_rows<T>(dataset, 0, dims.empty() ? 1 : dims[0], values);
  return dataset;
}

/// All values of a dataset of at most `max_elements`.
template <typename T>
[[nodiscard]] std::vector<T> read_values(const Object& parent, const std::string& name,
                                         std::uint64_t max_elements) {
  const Object dataset = open_dataset(parent, name);
  require_values(dataset, max_elements);
  const DatasetInfo info = describe(dataset);
  std::vector<T> values(static_cast<std::size_t>(info.elements));
  read_rows<T>(dataset, 0, info.dims.empty() ? 1 : info.dims[0], values);
  return values;
}

}  // namespace lockstep::h5
