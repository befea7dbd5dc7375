#pragma once

#include "lockstep/io/hdf5_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Recognises files that are given in place of a shard or a checkpoint of ours.
namespace lockstep {

/// What is known of a file that HDF5 cannot open.
struct FileStart {
  std::string_view path;
  std::string_view bytes;  ///< the first most_start_bytes, or the whole file
  std::uint64_t size = 0;
};
inline constexpr std::size_t most_start_bytes = std::size_t{1} << 16;

struct OtherFormat {
  std::string kind;    ///< "a file of torch.save"
  std::string advice;  ///< how to get a file that can be read
};
/// Judges by the content, and by the name if the content has no mark. nullopt: nothing is known, or
/// it begins as HDF5 does.
[[nodiscard]] std::optional<OtherFormat> other_format(const FileStart& file);

/// Error(bad_input) if the path is a directory that TensorFlow's SavedModel wrote.
void refuse_saved_model(const std::string& path);

/// Error(bad_input) if an HDF5 file was written by Keras, which gives it other contents.
void refuse_keras(const h5::Object& file, const std::string& path);

}  // namespace lockstep
