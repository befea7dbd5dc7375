#pragma once

#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/hdf5_writer.hpp"
#include "lockstep/train/evaluated_samples.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What the logits of a PredictionFile are of; its attributes.
struct PredictionSource {
  std::string checkpoint;  ///< name of the file
  std::string weights;     ///< "current", or "ema" for their average
  std::string model;
  std::string split;
  std::int64_t samples = 0;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;  ///< empty: unknown
  std::uint32_t data_identity = 0;
};

/// The logits and labels of a split as HDF5: docs/file-formats.md. The same samples give the same
/// bytes in whatever pieces and order they are added.
class PredictionFile final {
 public:
  /// Starts a temporary file. Error(cannot_write), as add() and publish().
  PredictionFile(const std::string& path, const PredictionSource& source);
  void add(const EvaluatedSamples& samples);
  /// Call after all samples were added; the path is then the whole file.
  void publish();

 private:
  std::string path_;
  TemporaryFile temporary_;
  h5::File file_;
  h5::Dataset logits_;
  h5::Dataset labels_;
  h5::Dataset indices_;
};

}  // namespace lockstep
