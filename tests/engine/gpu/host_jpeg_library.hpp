#pragma once

#include "../../../src/engine/gpu/jpeg_library.hpp"
#include "host_rules.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// Stands in for nvJPEG: decodes with the host's decoder, when the stream runs. A destroyed handle,
/// state or stream that is used, also by queued work, throws std::logic_error.
class HostJpegLibrary final : public JpegLibrary {
 public:
  bool has_engines = false;
  /// Files that decode_batched_supported() refuses; empty: none.
  std::function<bool(std::span<const std::uint8_t>)> refuses;
  /// Result of decode_batched() for a file; empty: success.
  std::function<JpegStatus(std::span<const std::uint8_t>)> result;
  std::vector<std::size_t> batches;  ///< sizes of the batches that were queued
  std::size_t decoded = 0;           ///< files that queued work has decoded

  [[nodiscard]] std::string version() const override { return "the host's decoder"; }
  [[nodiscard]] JpegStatus create(JpegBackend backend, unsigned flags, JpegHandle* handle) override;
  void destroy(JpegHandle handle) noexcept override;
  [[nodiscard]] JpegStatus hardware_decoder_info(JpegHandle handle, unsigned* engines,
                                                 unsigned* cores_per_engine) override;
  [[nodiscard]] JpegStatus state_create(JpegHandle handle, JpegState* state) override;
  void state_destroy(JpegState state) noexcept override;
  [[nodiscard]] JpegStatus decode_batched_initialize(JpegHandle handle, JpegState state,
                                                     int batch_size, int host_threads,
                                                     JpegOutput output) override;
  [[nodiscard]] JpegStatus decode_batched(JpegHandle handle, JpegState state,
                                          const JpegFiles& files, JpegPlanes* to,
                                          Stream stream) override;
  [[nodiscard]] JpegStatus stream_create(JpegHandle handle, JpegStream* stream) override;
  void stream_destroy(JpegStream stream) noexcept override;
  [[nodiscard]] JpegStatus stream_parse_header(JpegHandle handle, const std::uint8_t* file,
                                               std::size_t bytes, JpegStream stream) override;
  [[nodiscard]] JpegStatus decode_batched_supported(JpegHandle handle, JpegStream stream,
                                                    int* refused) override;

 private:
  void require(JpegHandle handle) const;

  std::shared_ptr<LiveObjects> live_ = std::make_shared<LiveObjects>();
};

}  // namespace lockstep::gpu
