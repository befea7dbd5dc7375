#pragma once

#include "kernels/kernels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::gpu {

/// The values of these types equal nvJPEG's.
enum class JpegStatus : int {
  success = 0,
  not_initialized = 1,
  invalid_parameter = 2,
  bad_jpeg = 3,
  jpeg_not_supported = 4,
  allocator_failure = 5,
  execution_failed = 6,
  arch_mismatch = 7,
  internal_error = 8,
  implementation_not_supported = 9,
  incomplete_bitstream = 10,
};
enum class JpegBackend : int {
  automatic = 0,
  hybrid = 1,      ///< Huffman codes on the host, the rest on the GPU's multiprocessors
  gpu_hybrid = 2,  ///< all on multiprocessors
  hardware = 3,    ///< the GPU's JPEG engines
};
enum class JpegOutput : int { interleaved_rgb = 5 };
/// Interpolates chroma as libjpeg does.
inline constexpr unsigned jpeg_interpolates = 1U << 5;
using JpegHandle = void*;  ///< an nvjpegHandle_t
using JpegState = void*;   ///< an nvjpegJpegState_t
using JpegStream = void*;  ///< an nvjpegJpegStream_t: a file's parsed headers
struct JpegPlanes {
  std::array<std::uint8_t*, 4> channels{};
  std::array<std::size_t, 4> pitch{};
};
struct JpegFiles {
  const std::uint8_t* const* data;
  const std::size_t* bytes;
};

/// The calls of nvJPEG that decoding needs, with the semantics that NVIDIA documents for the name
/// with prefix "nvjpeg".
class JpegLibrary {
 public:
  virtual ~JpegLibrary() = default;
  /// "nvJPEG 13.0.1"
  [[nodiscard]] virtual std::string version() const = 0;
  [[nodiscard]] virtual JpegStatus create(JpegBackend backend, unsigned flags,
                                          JpegHandle* handle) = 0;
  virtual void destroy(JpegHandle handle) noexcept = 0;
  /// implementation_not_supported if the library is too old to tell.
  [[nodiscard]] virtual JpegStatus hardware_decoder_info(JpegHandle handle, unsigned* engines,
                                                         unsigned* cores_per_engine) = 0;
  [[nodiscard]] virtual JpegStatus state_create(JpegHandle handle, JpegState* state) = 0;
  virtual void state_destroy(JpegState state) noexcept = 0;
  [[nodiscard]] virtual JpegStatus decode_batched_initialize(JpegHandle handle, JpegState state,
                                                             int batch_size, int host_threads,
                                                             JpegOutput output) = 0;
  [[nodiscard]] virtual JpegStatus decode_batched(JpegHandle handle, JpegState state,
                                                  const JpegFiles& files, JpegPlanes* to,
                                                  Stream stream) = 0;

  // Thread-safe, for separate streams.
  [[nodiscard]] virtual JpegStatus stream_create(JpegHandle handle, JpegStream* stream) = 0;
  virtual void stream_destroy(JpegStream stream) noexcept = 0;
  [[nodiscard]] virtual JpegStatus stream_parse_header(JpegHandle handle, const std::uint8_t* file,
                                                       std::size_t bytes, JpegStream stream) = 0;
  /// `refused`: not 0 if the file cannot be decoded in a batch.
  [[nodiscard]] virtual JpegStatus decode_batched_supported(JpegHandle handle, JpegStream stream,
                                                            int* refused) = 0;
};

[[nodiscard]] const char* to_string(JpegStatus status) noexcept;

}  // namespace lockstep::gpu
