#include "batch_decoder.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/resample_taps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace lockstep::gpu {
namespace {

constexpr std::int64_t channels = 3;

void check(JpegStatus status, const char* call) {
  if (status == JpegStatus::success) return;
  fail(ExitStatus::internal,
       "nvJPEG cannot decode images ({} returned {}: {}); use --decode cpu, and report this", call,
       static_cast<int>(status), to_string(status));
}

/// Whether the file is at fault, not the device.
bool is_of_file(JpegStatus status) noexcept {
  return status == JpegStatus::bad_jpeg || status == JpegStatus::jpeg_not_supported ||
         status == JpegStatus::incomplete_bitstream;
}

std::size_t decoded_bytes(const EncodedImage& image) noexcept {
  constexpr std::size_t alignment = 256;
  const auto bytes = static_cast<std::size_t>(image.height * channels * image.width);
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

struct BatchDecoder::Handle {
  JpegLibrary& library;
  JpegHandle handle;
  Handle(JpegLibrary& of, JpegHandle created) : library(of), handle(created) {}
  ~Handle() { library.destroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

struct BatchDecoder::Piece {
  Device& device;
  const Handle& handle;
  JpegState state = nullptr;
  int initialized = 0;  ///< batch size of `state`; 0: none
  std::unique_ptr<Event> done;
  // Arguments of the library.
  std::vector<const std::uint8_t*> files;
  std::vector<std::size_t> sizes;
  std::vector<JpegPlanes> planes;
  DeviceArray<DecodedImage> host_images;
  DeviceArray<ImageResize> host_resizes;
  DeviceArray<DecodedImage> images;
  DeviceArray<ImageResize> resizes;

  Piece(Device& on, const Handle& of) : device(on), handle(of), done(on.make_event()) {
    check(handle.library.state_create(handle.handle, &state), "nvjpegJpegStateCreate");
  }
  ~Piece() { handle.library.state_destroy(state); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  void grow(std::size_t count) {
    if (images.size() >= count) return;
    count = std::bit_ceil(count);  // so that few steps allocate
    using Place = MemoryPlace;
    host_images = DeviceArray<DecodedImage>(device, count, Place::host);
    host_resizes = DeviceArray<ImageResize>(device, count, Place::host);
    images = DeviceArray<DecodedImage>(device, count);
    resizes = DeviceArray<ImageResize>(device, count);
  }
};

/// Asks the library whether it decodes a file in a batch.
class BatchDecoder::Filter final : public FileFilter {
 public:
  explicit Filter(const Handle& handle) : handle_(handle) {
    check(handle_.library.stream_create(handle_.handle, &stream_), "nvjpegJpegStreamCreate");
  }
  ~Filter() override { handle_.library.stream_destroy(stream_); }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  [[nodiscard]] bool accepts(std::span<const std::byte> file) override {
    JpegLibrary& library = handle_.library;
    const auto* data = reinterpret_cast<const std::uint8_t*>(file.data());
    int refused = 1;
    return library.stream_parse_header(handle_.handle, data, file.size(), stream_) ==
               JpegStatus::success &&
           library.decode_batched_supported(handle_.handle, stream_, &refused) ==
               JpegStatus::success &&
           refused == 0;
  }

 private:
  const Handle& handle_;
  JpegStream stream_ = nullptr;
};

namespace {

struct Created {
  JpegHandle handle;
  JpegBackend backend;
};

Created create(JpegLibrary& library, std::optional<JpegBackend> wanted) {
  const std::array backends{wanted.value_or(JpegBackend::hardware),
                            wanted.value_or(JpegBackend::gpu_hybrid)};
  JpegStatus status = JpegStatus::success;
  for (const JpegBackend backend : backends) {
    JpegHandle handle = nullptr;
    status = library.create(backend, jpeg_interpolates, &handle);
    if (status == JpegStatus::success) return {.handle = handle, .backend = backend};
  }
  fail(ExitStatus::usage,
       "--decode gpu is not possible ({} cannot use this GPU: {}); use --decode cpu",
       library.version(), to_string(status));
}

std::string describe(JpegLibrary& library, const Created& created) {
  if (created.backend != JpegBackend::hardware) {
    return fmt::format("{}, multiprocessors", library.version());
  }
  unsigned engines = 0;
  unsigned cores = 0;
  const JpegStatus status = library.hardware_decoder_info(created.handle, &engines, &cores);
  if (status != JpegStatus::success) return fmt::format("{}, JPEG engines", library.version());
  return fmt::format("{}, {} JPEG engine{} of {} core{}", library.version(), engines,
                     engines == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

}  // namespace

BatchDecoder::BatchDecoder(Device& device, const BatchDecoderOptions& options)
    : device_(device), library_(device.jpeg_library()), options_(options) {
  const Created created = create(library_, options.backend);
  handle_ = std::make_unique<const Handle>(library_, created.handle);
  description_ = describe(library_, created);
  for (auto& piece : pieces_) piece = std::make_unique<Piece>(device_, *handle_);
}

BatchDecoder::~BatchDecoder() {
  finish();  // the library's states must not be destroyed under queued work
}

void BatchDecoder::finish() noexcept {
  try {
    for (const auto& piece : pieces_) device_.wait(*piece->done);
  } catch (const Error&) {  // the failed work is no longer queued
  }
}

std::unique_ptr<FileFilter> BatchDecoder::make_filter() {
  return std::make_unique<Filter>(*handle_);
}

std::vector<DecodeTarget> BatchDecoder::decode(const PixelImages& images,
                                               std::span<const DecodeTarget> targets) {
  std::vector<DecodeTarget> refused;
  std::size_t begin = 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::size_t next = decoded_bytes(images.encoded.images[targets[i].image]);
    if (i > begin && bytes + next > options_.piece_bytes) {
      queue(images, targets.subspan(begin, i - begin), refused);
      begin = i;
      bytes = 0;
    }
    bytes += next;
  }
  if (begin < targets.size()) queue(images, targets.subspan(begin), refused);
  return refused;
}

void BatchDecoder::queue(const PixelImages& images, std::span<const DecodeTarget> targets,
                         std::vector<DecodeTarget>& refused) {
  Piece& piece = *pieces_[next_piece_++ % pieces_.size()];
  device_.wait(*piece.done);
  ImageExtent extent{.batch = static_cast<std::int64_t>(targets.size()),
                     .height = images.height,
                     .width = images.width,
                     .channels = channels,
                     .padded = channels};
  std::size_t bytes = 0;
  std::int64_t most_taps = 0;
  for (const DecodeTarget& target : targets) {
    const EncodedImage& image = images.encoded.images[target.image];
    bytes += decoded_bytes(image);
    for (const AxisResize& axis : {image.resize.rows, image.resize.columns}) {
      most_taps =
          std::max(most_taps, ResampleTaps::most(axis.source, axis.size, image.resize.filter));
    }
  }
  grow(bytes, resize_images_workspace(extent, most_taps));
  piece.grow(targets.size());
  const JpegStatus status = decode_files(piece, images, targets);
  if (status != JpegStatus::success) {
    device_.mark(*piece.done, Device::Queue::transfers);
    if (!is_of_file(status)) check(status, "nvjpegDecodeBatched");
    // Finds the refused files, so that the others' pixels do not depend on them.
    if (targets.size() == 1) {
      refused.push_back(targets.front());
    } else {
      const std::size_t half = targets.size() / 2;
      queue(images, targets.first(half), refused);
      queue(images, targets.subspan(half), refused);
    }
    return;
  }
  device_.transfer_to_device(piece.images.data(), piece.host_images.data(),
                             targets.size() * sizeof(DecodedImage));
  device_.transfer_to_device(piece.resizes.data(), piece.host_resizes.data(),
                             targets.size() * sizeof(ImageResize));
  resize_images(device_.transfer_stream(), extent,
                {.images = piece.images.data(),
                 .resizes = piece.resizes.data(),
                 .most_taps = most_taps,
                 .workspace = workspace_.data()});
  device_.mark(*piece.done, Device::Queue::transfers);
}

void BatchDecoder::grow(std::size_t decoded, std::size_t workspace) {
  if (decoded_.size() >= decoded && workspace_.size() >= workspace) return;
  for (const auto& piece : pieces_) device_.wait(*piece->done);  // no work may use the old buffers
  if (decoded_.size() < decoded) {
    decoded_ = {};
    decoded_ = DeviceArray<std::uint8_t>(device_, std::bit_ceil(decoded));
  }
  if (workspace_.size() < workspace) {
    workspace_ = {};
    workspace_ = DeviceArray<std::byte>(device_, std::bit_ceil(workspace));
  }
}

JpegStatus BatchDecoder::decode_files(Piece& piece, const PixelImages& images,
                                      std::span<const DecodeTarget> targets) {
  piece.files.clear();
  piece.sizes.clear();
  piece.planes.clear();
  std::uint8_t* at = decoded_.data();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const EncodedImage& image = images.encoded.images[targets[i].image];
    piece.files.push_back(reinterpret_cast<const std::uint8_t*>(image.file));
    piece.sizes.push_back(image.bytes);
    piece.planes.push_back(
        {.channels = {at}, .pitch = {static_cast<std::size_t>(image.width * channels)}});
    piece.host_images.data()[i] = {
        .pixels = at, .resized = targets[i].pixels, .width = image.width};
    piece.host_resizes.data()[i] = image.resize;
    at += decoded_bytes(image);
  }
  const int count = static_cast<int>(targets.size());
  if (piece.initialized != count) {
    check(library_.decode_batched_initialize(handle_->handle, piece.state, count, 1,
                                             JpegOutput::interleaved_rgb),
          "nvjpegDecodeBatchedInitialize");
    piece.initialized = count;
  }
  const JpegStatus status = library_.decode_batched(handle_->handle, piece.state,
                                                    {piece.files.data(), piece.sizes.data()},
                                                    piece.planes.data(), device_.transfer_stream());
  // After a failure the library must be initialized again.
  if (status != JpegStatus::success) piece.initialized = 0;
  return status;
}

}  // namespace lockstep::gpu
