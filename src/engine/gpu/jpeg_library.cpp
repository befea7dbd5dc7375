#include "jpeg_library.hpp"

namespace lockstep::gpu {

const char* to_string(JpegStatus status) noexcept {
  switch (status) {
    case JpegStatus::success:
      return "success";
    case JpegStatus::not_initialized:
      return "not initialized";
    case JpegStatus::invalid_parameter:
      return "invalid parameter";
    case JpegStatus::bad_jpeg:
      return "bad JPEG";
    case JpegStatus::jpeg_not_supported:
      return "JPEG not supported";
    case JpegStatus::allocator_failure:
      return "out of memory";
    case JpegStatus::execution_failed:
      return "execution failed";
    case JpegStatus::arch_mismatch:
      return "this GPU has no such decoder";
    case JpegStatus::internal_error:
      return "internal error";
    case JpegStatus::implementation_not_supported:
      return "not supported by this version";
    case JpegStatus::incomplete_bitstream:
      return "incomplete file";
  }
  return "unknown status";
}

}  // namespace lockstep::gpu
