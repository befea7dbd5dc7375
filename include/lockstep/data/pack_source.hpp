#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/encode.hpp"
#include "lockstep/data/entry_fates.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Parts of a source. The test part is packed as split `val`.
enum class SourcePart { train, val };

/// How the bytes of a packed sample came from its file.
enum class Conversion {
  none,        ///< pixels, or the JPEG file itself
  re_encoded,  ///< a JPEG file made because the file is no grey or RGB JPEG
  resized,     ///< a JPEG file made because the image is larger than wanted
};

/// What PackSource::read() found besides the sample.
struct ReadResult {
  std::span<const std::byte> pixels;  ///< channel fastest, valid until the next read
  Conversion conversion = Conversion::none;
};

/// Properties common to all samples of a source.
struct SourceInfo {
  ImageShape image;             ///< height = width = 0 if encoded
  bool encoded = false;         ///< samples are JPEG files
  std::int64_t short_side = 0;  ///< as DatasetInfo::short_side
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  std::string settings = {};   ///< one line: the options that decide the samples' bytes
  std::uint32_t identity = 0;  ///< CRC-32C over the listing; detects ranks that see different files
  EntryFates fates = {};       ///< of the input's entries that are no samples
  std::vector<std::string> notes = {};  ///< choices that the input left open, for the user
};

/// Labelled images in a published format, in any order, to be packed into shards.
class PackSource {
 public:
  virtual ~PackSource() = default;
  [[nodiscard]] virtual const SourceInfo& info() const noexcept = 0;
  /// 0 if the source has no such part.
  [[nodiscard]] virtual std::int64_t samples(SourcePart part) const noexcept = 0;
  [[nodiscard]] virtual std::int64_t label(SourcePart part, std::int64_t index) const = 0;
  /// Origin of a sample, for messages: the path of its file.
  [[nodiscard]] virtual std::string describe(SourcePart part, std::int64_t index) const = 0;
  /// Size of a sample as it is packed; of its file, if it is converted.
  [[nodiscard]] virtual std::uint64_t bytes_of(SourcePart part, std::int64_t index) const = 0;
  /// Reads pixels (H, W, C) or a JPEG file, and the label, into `sample`. JPEG files are decoded
  /// too, so one that does not decode is never packed. Error(bad_input) if the sample is damaged:
  /// others may be good, and the text does not name it. Any other Error names the file.
  [[nodiscard]] virtual ReadResult read(SourcePart part, std::int64_t index, RawSample& sample) = 0;
};

/// MNIST and data sets in its format: {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz.
[[nodiscard]] std::unique_ptr<PackSource> open_mnist_source(const std::string& directory);

/// The binary version of CIFAR-10 (data_batch_1.bin to 5, test_batch.bin) or CIFAR-100 (train.bin,
/// test.bin; the fine labels).
[[nodiscard]] std::unique_ptr<PackSource> open_cifar_source(const std::string& directory);

/// What to do about an image that does not decode, and about entries that look like data and have
/// no place.
enum class OnBad {
  stop,  ///< fail, naming it
  skip,  ///< leave it out, and list it
};

/// What is packed of a set of image files, and how.
struct ImageOptions {
  std::string directory;
  /// Pixels: images are resized to cover image_size x image_width, then the centre is cropped.
  std::int64_t image_size = 224;
  std::optional<std::int64_t> image_width = std::nullopt;  ///< none: image_size
  bool keep_encoded = false;  ///< packs JPEG files unchanged, others as JPEG files
  /// Pixels, with keep_encoded: larger images are resized to this short side, and encoded again.
  std::optional<std::int64_t> short_side = std::nullopt;
  std::int64_t quality = default_jpeg_quality;  ///< of JPEG files that are made, 1 to 100
  std::string val_labels = {};   ///< file that labels the images of a val/ without class folders
  std::string class_ids = {};    ///< file that names the classes of a `val_labels` of numbers
  std::string class_names = {};  ///< file with readable names of the classes
  OnBad on_bad = OnBad::stop;
};
/// A folder of class folders with PNG and JPEG files, or folders named as parts with such folders;
/// with `val_labels`, the part that becomes val has the images themselves.
/// Classes are the class folders of the training part, sorted by name. Collective; all ranks return
/// or all throw the same Error.
[[nodiscard]] std::unique_ptr<PackSource> open_folder_source(const ImageOptions& options,
                                                             Communicator& comm);

/// ImageNet as it is distributed: ILSVRC2012_img_train.tar, an archive of an archive for each
/// class, and ILSVRC2012_img_val.tar, which needs `val_labels`. Nothing is unpacked. Collective, as
/// above.
[[nodiscard]] std::unique_ptr<PackSource> open_tar_source(const ImageOptions& options,
                                                          Communicator& comm);

/// A WebDataset: folders named as parts with *.tar, or *.tar whose names say the part. A sample is
/// an image with a .cls or .json file of the same name that has the label, a number. Classes are
/// those of `class_names`, in its order, else as many as the largest label requires. Collective.
[[nodiscard]] std::unique_ptr<PackSource> open_webdataset_source(const ImageOptions& options,
                                                                 Communicator& comm);

}  // namespace lockstep
