#include "lockstep/core/error.hpp"
#include "lockstep/data/encode.hpp"

#include <cassert>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>

// jpeglib.h needs size_t and FILE from above.
#include <jpeglib.h>

namespace lockstep {
namespace {

constexpr std::int64_t longest_side = JPEG_MAX_DIMENSION;

/// libjpeg reports a fault by a callback that must not return; it jumps back to encode().
struct Faults {
  jpeg_error_mgr manager{};
  std::jmp_buf back{};
};

[[noreturn]] void jump_back(j_common_ptr info) {
  std::longjmp(reinterpret_cast<Faults*>(info->err)->back, 1);
}

struct FreeMemory {
  void operator()(unsigned char* memory) const noexcept { std::free(memory); }
};

/// Returns false if memory ran out, the only fault left. No object with a destructor may be alive
/// between setjmp and longjmp.
bool encode(const Image& image, std::int64_t quality, jpeg_compress_struct& info, Faults& faults,
            unsigned char*& file, unsigned long& bytes) {
  if (setjmp(faults.back) != 0) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &file, &bytes);
  info.image_height = static_cast<JDIMENSION>(image.shape.height);
  info.image_width = static_cast<JDIMENSION>(image.shape.width);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, static_cast<int>(quality), TRUE);
  info.optimize_coding = TRUE;  // smaller, and decodes to the same pixels
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    // libjpeg takes rows without const, but does not change them.
    auto* row = const_cast<JSAMPLE*>(reinterpret_cast<const JSAMPLE*>(image.pixels.data())) +
                static_cast<std::int64_t>(info.next_scanline) * image.shape.width * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

void encode_jpeg(const Image& image, std::int64_t quality, std::vector<std::byte>& file) {
  assert(image.shape.channels == 3);
  if (image.shape.height > longest_side || image.shape.width > longest_side) {
    fail(ExitStatus::bad_input,
         "an image of {}x{} pixels (a side of a JPEG file has at most {}); shrink it",
         image.shape.height, image.shape.width, longest_side);
  }
  Faults faults;
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&faults.manager);
  faults.manager.error_exit = jump_back;
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  const bool encoded = encode(image, quality, info, faults, buffer, bytes);
  jpeg_destroy_compress(&info);
  const std::unique_ptr<unsigned char, FreeMemory> owner(buffer);
  if (!encoded) throw std::bad_alloc();
  const auto* first = reinterpret_cast<const std::byte*>(buffer);
  file.assign(first, first + bytes);
}

std::int64_t jpeg_components(std::span<const std::byte> file) noexcept {
  const auto byte = [&](std::size_t at) {
    return at < file.size() ? std::to_integer<std::uint32_t>(file[at]) : 0u;
  };
  for (std::size_t at = 0; at + 1 < file.size();) {
    const std::uint32_t marker = byte(at + 1);
    // Bytes before a marker are skipped, as libjpeg does.
    if (byte(at) != 0xFF || marker == 0xFF || marker == 0) {
      ++at;
      continue;
    }
    const bool frame =
        marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    // After the marker: length (2 bytes), precision (1), height (2), width (2), components (1).
    if (frame) return byte(at + 9);
    const bool has_no_length = marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    at += 2 + (has_no_length ? 0u : byte(at + 2) << 8 | byte(at + 3));
  }
  return 0;
}

}  // namespace lockstep
