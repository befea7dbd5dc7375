#include "host_jpeg_library.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"
#include "run_in.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::gpu {
namespace {

using File = std::span<const std::uint8_t>;
struct Handle {
  Liveness alive;
};
struct State {
  Liveness alive;
  int batch_size = 0;
};
struct Parsed {
  Liveness alive;
  File file;
};

/// The object of a handle; throws if it is destroyed.
template <typename T>
T& existing(const LiveObjects& live, void* handle, const char* what) {
  auto* const object = static_cast<T*>(handle);
  live.require(&object->alive, what);
  return *object;
}

void decode(File file, const JpegPlanes& to) {
  Image image;
  try {
    decode_jpeg(std::as_bytes(file), 3, image);
  } catch (const Error&) {
    return;  // like a GPU, which leaves some pixels
  }
  const auto* from = reinterpret_cast<const std::uint8_t*>(image.pixels.data());
  const auto row = static_cast<std::size_t>(image.shape.width * 3);
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.shape.height); ++y) {
    std::copy_n(from + y * row, row, to.channels[0] + y * to.pitch[0]);
  }
}

}  // namespace

void HostJpegLibrary::require(JpegHandle handle) const {
  (void)existing<Handle>(*live_, handle, "an nvjpegHandle_t");
}

JpegStatus HostJpegLibrary::create(JpegBackend backend, unsigned flags, JpegHandle* handle) {
  if (backend == JpegBackend::hardware && !has_engines) return JpegStatus::arch_mismatch;
  if (flags != jpeg_interpolates) return JpegStatus::invalid_parameter;
  *handle = new Handle{Liveness(live_)};
  return JpegStatus::success;
}

void HostJpegLibrary::destroy(JpegHandle handle) noexcept {
  require(handle);
  delete static_cast<Handle*>(handle);
}

JpegStatus HostJpegLibrary::hardware_decoder_info(JpegHandle handle, unsigned* engines,
                                                  unsigned* cores_per_engine) {
  require(handle);
  *engines = 1;
  *cores_per_engine = 8;
  return JpegStatus::success;
}

JpegStatus HostJpegLibrary::state_create(JpegHandle handle, JpegState* state) {
  require(handle);
  *state = new State{Liveness(live_)};
  return JpegStatus::success;
}

void HostJpegLibrary::state_destroy(JpegState state) noexcept {
  delete &existing<State>(*live_, state, "an nvjpegJpegState_t");
}

JpegStatus HostJpegLibrary::decode_batched_initialize(JpegHandle handle, JpegState state,
                                                      int batch_size, int /*host_threads*/,
                                                      JpegOutput output) {
  if (output != JpegOutput::interleaved_rgb) return JpegStatus::invalid_parameter;
  require(handle);
  existing<State>(*live_, state, "an nvjpegJpegState_t").batch_size = batch_size;
  return JpegStatus::success;
}

JpegStatus HostJpegLibrary::decode_batched(JpegHandle handle, JpegState state,
                                           const JpegFiles& files, JpegPlanes* to, Stream stream) {
  require(handle);
  State& used = existing<State>(*live_, state, "an nvjpegJpegState_t");
  const int count = std::exchange(used.batch_size, 0);
  if (count == 0) throw std::logic_error("decode_batched() without decode_batched_initialize()");
  std::vector<File> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(files.data[i], files.bytes[i]);
    const JpegStatus status = result ? result(all.back()) : JpegStatus::success;
    if (status != JpegStatus::success) return status;
  }
  used.batch_size = count;
  batches.push_back(all.size());
  run_in(stream,
         [this, all, planes = std::vector<JpegPlanes>(to, to + count), live = live_, state] {
           (void)existing<State>(*live, state, "an nvjpegJpegState_t");
           for (std::size_t i = 0; i < all.size(); ++i) decode(all[i], planes[i]);
           decoded += all.size();
         });
  return JpegStatus::success;
}

JpegStatus HostJpegLibrary::stream_create(JpegHandle handle, JpegStream* stream) {
  require(handle);
  *stream = new Parsed{Liveness(live_), {}};
  return JpegStatus::success;
}

void HostJpegLibrary::stream_destroy(JpegStream stream) noexcept {
  delete &existing<Parsed>(*live_, stream, "an nvjpegJpegStream_t");
}

JpegStatus HostJpegLibrary::stream_parse_header(JpegHandle handle, const std::uint8_t* file,
                                                std::size_t bytes, JpegStream stream) {
  require(handle);
  existing<Parsed>(*live_, stream, "an nvjpegJpegStream_t").file = {file, bytes};
  return JpegStatus::success;
}

JpegStatus HostJpegLibrary::decode_batched_supported(JpegHandle handle, JpegStream stream,
                                                     int* refused) {
  require(handle);
  const File file = existing<Parsed>(*live_, stream, "an nvjpegJpegStream_t").file;
  *refused = refuses && refuses(file) ? 1 : 0;
  return JpegStatus::success;
}

}  // namespace lockstep::gpu
