#pragma once

#include "../data_type.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/core/host_device.hpp"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/// Vectorised loads and stores of 16 bytes.
namespace lockstep::gpu {

/// Calls `function` with a null pointer to the storage type.
template <typename Function>
void with_type(DataType type, const Function& function) {
  switch (type) {
    case DataType::f32:
      return function(static_cast<float*>(nullptr));
    case DataType::bf16:
      return function(static_cast<Bfloat16*>(nullptr));
    case DataType::f16:
      return function(static_cast<Float16*>(nullptr));
  }
}

/// Calls `function` with the flags as its template arguments.
template <bool... known, typename Function>
void with_flags(const Function& function) {
  function.template operator()<known...>();
}
template <bool... known, typename Function, typename... Flags>
void with_flags(const Function& function, bool flag, Flags... others) {
  if (flag) {
    with_flags<known..., true>(function, others...);
  } else {
    with_flags<known..., false>(function, others...);
  }
}

template <int count>
struct Floats {
  float values[count];
  LOCKSTEP_HOST_DEVICE float& operator[](int i) { return values[i]; }
  LOCKSTEP_HOST_DEVICE const float& operator[](int i) const { return values[i]; }
};
template <int count>
LOCKSTEP_HOST_DEVICE Floats<count> filled(float value) {
  Floats<count> result;
  for (int i = 0; i < count; ++i) result[i] = value;
  return result;
}

#ifndef __CUDA_ARCH__
/// A device faults at a misaligned access; the host ends the program, also without assertions.
inline void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
  std::fprintf(stderr, "a kernel accesses %zu bytes at %p, which is not aligned\n", bytes, address);
  std::abort();
}
#endif

/// Sixteen bytes of memory.
struct alignas(16) Packed128 {
  std::uint32_t words[4];
};
LOCKSTEP_HOST_DEVICE inline Packed128 load128(const void* from) {
#ifdef __CUDA_ARCH__
  const uint4 words = *static_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
#else
  require_aligned(from, sizeof(Packed128));
  Packed128 packed;
  std::memcpy(&packed, from, sizeof(packed));
  return packed;
#endif
}
LOCKSTEP_HOST_DEVICE inline void store128(void* to, const Packed128& packed) {
#ifdef __CUDA_ARCH__
  // nvcc may split a uint4 into four stores (up to sm_90), and does so for converted values.
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(packed.words[0]), "r"(packed.words[1]),
                 "r"(packed.words[2]), "r"(packed.words[3])
               : "memory");
#else
  require_aligned(to, sizeof(Packed128));
  std::memcpy(to, &packed, sizeof(packed));
#endif
}

/// Reads or writes a value of 4 or 8 bytes in one access.
template <typename Bytes>
LOCKSTEP_HOST_DEVICE Bytes read_together(const std::uint8_t* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Bytes*>(from);
#else
  require_aligned(from, sizeof(Bytes));
  Bytes result;
  std::memcpy(&result, from, sizeof(result));
  return result;
#endif
}
template <typename Bytes>
LOCKSTEP_HOST_DEVICE void write_together(std::uint8_t* to, const Bytes& from) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Bytes*>(to) = from;
#else
  require_aligned(to, sizeof(from));
  std::memcpy(to, &from, sizeof(from));
#endif
}

/// How many values 16 bytes hold.
template <typename T>
inline constexpr int packed_size = 16 / static_cast<int>(sizeof(T));

LOCKSTEP_HOST_DEVICE inline float to_float(float value) {
  return value;
}
LOCKSTEP_HOST_DEVICE inline float to_float(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
LOCKSTEP_HOST_DEVICE inline float to_float(Float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return static_cast<float>(value);
#endif
}

template <typename T>
LOCKSTEP_HOST_DEVICE T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
#ifdef __CUDA_ARCH__
    T result;
    if constexpr (std::is_same_v<T, Bfloat16>) {
      result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    } else {
      result.bits = __half_as_ushort(__float2half_rn(value));
    }
    return result;
#else
    return T(value);
#endif
  }
}

template <typename T>
LOCKSTEP_HOST_DEVICE Floats<packed_size<T>> unpack(const Packed128& packed) {
  Floats<packed_size<T>> result;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = packed.words[i];
    if constexpr (std::is_same_v<T, float>) {
      result[i] = std::bit_cast<float>(word);
    } else if constexpr (std::is_same_v<T, Bfloat16>) {
      result[2 * i] = std::bit_cast<float>(word << 16);
      result[2 * i + 1] = std::bit_cast<float>(word & 0xFFFF0000U);
    } else {
      Float16 low;
      Float16 high;
      low.bits = static_cast<std::uint16_t>(word);
      high.bits = static_cast<std::uint16_t>(word >> 16);
      result[2 * i] = to_float(low);
      result[2 * i + 1] = to_float(high);
    }
  }
  return result;
}

/// Two values in a word, the first in its lower half.
template <typename T>
LOCKSTEP_HOST_DEVICE std::uint32_t pack_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  // With the intrinsic functions, nvcc splits the pair and joins it again.
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, Bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return static_cast<std::uint32_t>(T(low).bits) | static_cast<std::uint32_t>(T(high).bits) << 16;
#endif
}

template <typename T>
LOCKSTEP_HOST_DEVICE Packed128 pack(const Floats<packed_size<T>>& values) {
  Packed128 packed;
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      packed.words[i] = std::bit_cast<std::uint32_t>(values[i]);
    } else {
      packed.words[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
    }
  }
  return packed;
}

/// `from` and `to` are aligned to 16 bytes.
template <int count, typename T>
LOCKSTEP_HOST_DEVICE Floats<count> load(const T* from) {
  static_assert(count % packed_size<T> == 0);
  Floats<count> result;
  for (int at = 0; at < count; at += packed_size<T>) {
    const Floats<packed_size<T>> part = unpack<T>(load128(from + at));
    for (int i = 0; i < packed_size<T>; ++i) result[at + i] = part[i];
  }
  return result;
}
template <int count, typename T>
LOCKSTEP_HOST_DEVICE void store(T* to, const Floats<count>& values) {
  static_assert(count % packed_size<T> == 0);
  for (int at = 0; at < count; at += packed_size<T>) {
    Floats<packed_size<T>> part;
    for (int i = 0; i < packed_size<T>; ++i) part[i] = values[at + i];
    store128(to + at, pack<T>(part));
  }
}

}  // namespace lockstep::gpu
