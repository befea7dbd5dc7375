#pragma once

#include "lockstep/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Parts of a source. The test part is packed as split `val`.
enum class SourcePart { train, val };

/// Properties common to all samples of a source.
struct SourceInfo {
  ImageShape image;      ///< height = width = 0 if encoded
  bool encoded = false;  ///< samples are JPEG files
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  std::uint32_t identity = 0;  ///< CRC-32C over the listing; detects ranks that see different files
};

/// Labelled images in a published format, in any order, to be packed into shards.
class PackSource {
 public:
  virtual ~PackSource() = default;
  [[nodiscard]] virtual const SourceInfo& info() const noexcept = 0;
  /// 0 if the source has no such part.
  [[nodiscard]] virtual std::int64_t samples(SourcePart part) const noexcept = 0;
  /// Size of a sample as it is packed.
  [[nodiscard]] virtual std::uint64_t bytes_of(SourcePart part, std::int64_t index) const = 0;
  /// Reads pixels (H, W, C) or a JPEG file, and the label, into `sample`. Returns the pixels,
  /// channel fastest, valid until the next read. JPEG files are decoded too, so one that does not
  /// decode is never packed. Error(bad_input or no_input) names the file.
  virtual std::span<const std::byte> read(SourcePart part, std::int64_t index,
                                          RawSample& sample) = 0;
};

/// MNIST and data sets in its format: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz.
[[nodiscard]] std::unique_ptr<PackSource> open_mnist_source(const std::string& directory);

/// The binary version of CIFAR-10 (data_batch_1.bin to 5, test_batch.bin) or CIFAR-100 (train.bin,
/// test.bin; the fine labels).
[[nodiscard]] std::unique_ptr<PackSource> open_cifar_source(const std::string& directory);

struct FolderOptions {
  std::string directory;
  std::int64_t image_size = 224;  ///< pixels: resizes the short side, then crops the centre
  bool keep_encoded = false;      ///< packs JPEG files unchanged
};
/// A folder of class folders with PNG and JPEG files, or train/ and val/ with such folders.
/// Classes are the class folders of the training part, sorted by name.
[[nodiscard]] std::unique_ptr<PackSource> open_folder_source(const FolderOptions& options);

}  // namespace lockstep
