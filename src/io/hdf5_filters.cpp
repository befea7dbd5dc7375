#include "hdf5_storage.hpp"

#include <zlib.h>

#include <cstring>

namespace lockstep::h5 {
namespace {

[[noreturn]] void damaged_chunk(const std::string& object, std::string_view why) {
  fail(ExitStatus::bad_input, "a chunk of {} is damaged ({}); copy or write the file again", object,
       why);
}

/// Inflates into memory of `count` bytes, which may not be all used.
Bytes inflated(const Bytes& stored, std::uint64_t count, const std::string& object) {
  Bytes values(static_cast<std::size_t>(count));
  auto length = static_cast<uLongf>(values.size());
  const int status =
      uncompress(reinterpret_cast<Bytef*>(values.data()), &length,
                 reinterpret_cast<const Bytef*>(stored.data()), static_cast<uLong>(stored.size()));
  if (status != Z_OK) {
    damaged_chunk(object, status == Z_BUF_ERROR ? "it has another size" : "it does not inflate");
  }
  values.resize(length);
  return values;
}

/// The filter stores the first bytes of all elements, then the second ones, and so on.
Bytes unshuffled(const Bytes& stored, std::size_t element_bytes) {
  const std::size_t elements = stored.size() / element_bytes;
  Bytes values = stored;  // what is left over stays at the end
  for (std::size_t byte = 0; byte < element_bytes; ++byte) {
    const std::byte* from = stored.data() + byte * elements;
    for (std::size_t i = 0; i < elements; ++i) values[i * element_bytes + byte] = from[i];
  }
  return values;
}

/// Fletcher's checksum over big-endian 16-bit words; an odd last byte is the upper half of one.
std::uint32_t fletcher(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::uint64_t sum_of_sums = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = std::to_integer<std::uint32_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0U;
    sum = (sum + (high << 8 | low)) % 65535;
    sum_of_sums = (sum_of_sums + sum) % 65535;
  }
  return static_cast<std::uint32_t>(sum_of_sums << 16 | sum);
}

/// The writer's sums are between 1 and 65535 where ours are between 0 and 65534.
bool equals_fletcher(std::uint32_t stored, std::uint32_t found) noexcept {
  return (stored & 0xFFFF) % 65535 == (found & 0xFFFF) && (stored >> 16) % 65535 == found >> 16;
}

void check_fletcher(Bytes& stored, const std::string& object) {
  std::uint32_t sum = 0;
  if (stored.size() < sizeof(sum)) damaged_chunk(object, "its checksum is missing");
  const std::size_t size = stored.size() - sizeof(sum);
  std::memcpy(&sum, stored.data() + size, sizeof(sum));
  stored.resize(size);
  if (!equals_fletcher(sum, fletcher(stored))) damaged_chunk(object, "its checksum does not match");
}

}  // namespace

Bytes undo_filters(Bytes stored, std::span<const std::uint16_t> filters, std::uint32_t skipped,
                   std::size_t element_bytes, std::uint64_t chunk_bytes,
                   const std::string& object) {
  constexpr std::uint64_t checksum_bytes = 4;
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    if (filters[i] == deflate) {
      // A checksum may have been added before.
      stored = inflated(stored, chunk_bytes + checksum_bytes, object);
    } else if (filters[i] == shuffle) {
      stored = unshuffled(stored, element_bytes);
    } else {
      check_fletcher(stored, object);
    }
  }
  if (stored.size() != chunk_bytes) damaged_chunk(object, "it has another size");
  return stored;
}

}  // namespace lockstep::h5
