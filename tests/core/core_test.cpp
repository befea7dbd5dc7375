#include <boost/test/unit_test.hpp>

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/unique_handle.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(crc32c_gives_the_published_check_values) {
  // RFC 3720 B.4 and the usual "123456789".
  BOOST_TEST(crc32c(std::string_view("123456789")) == 0xE3069283u);
  BOOST_TEST(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  BOOST_TEST(crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
}

BOOST_AUTO_TEST_CASE(crc32c_of_parts_is_crc32c_of_the_whole) {
  const std::string text = "a step is a walk over a vector of bound primitives";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto first = crc32c(std::string_view(text).substr(0, cut));
    BOOST_TEST(crc32c(std::string_view(text).substr(cut), first) == crc32c(text));
  }
}

BOOST_AUTO_TEST_CASE(filled_bytes_are_those_of_the_next_numbers) {
  for (const std::size_t size : {0, 1, 4, 7, 255, 256, 257, 4097}) {
    for (const int taken : {0, 1, 3, 4, 5}) {
      PhiloxStream filling(7, RandomPurpose::mixing, 3, 4);
      PhiloxStream single(7, RandomPurpose::mixing, 3, 4);
      for (int i = 0; i < taken; ++i) BOOST_REQUIRE(filling.next_u32() == single.next_u32());
      std::vector<std::byte> bytes(size);

      filling.fill(bytes);

      std::uint32_t number = 0;
      for (std::size_t i = 0; i < size; ++i) {
        number = i % 4 == 0 ? single.next_u32() : number >> 8;
        BOOST_REQUIRE(std::to_integer<std::uint32_t>(bytes[i]) == (number & 0xFFU));
      }
      BOOST_TEST(filling.next_u32() == single.next_u32());
    }
  }
}

BOOST_AUTO_TEST_CASE(philox_gives_the_published_known_answers) {
  // Random123's kat_vectors for philox4x32-10.
  const auto zero = philox4x32({0, 0, 0, 0}, {0, 0});
  BOOST_TEST(zero[0] == 0x6627e8d5u);
  BOOST_TEST(zero[3] == 0x9b00dbd8u);
  const auto ones = philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u});
  BOOST_TEST(ones[0] == 0x408f276du);
}

BOOST_AUTO_TEST_CASE(normal_numbers_have_mean_zero_and_variance_one) {
  PhiloxStream stream(7, RandomPurpose::initialization, 1, 2);
  double sum = 0;
  double squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = stream.next_normal();
    sum += x;
    squares += x * x;
  }
  // Five standard errors: 5/sqrt(n) and 5*sqrt(2/n).
  BOOST_TEST(std::abs(sum / n) < 0.016);
  BOOST_TEST(std::abs(squares / n - 1) < 0.023);
}

BOOST_AUTO_TEST_CASE(shape_gives_its_elements_and_text) {
  const Shape shape{3, 5, 7};
  BOOST_TEST(shape.elements() == 105);
  BOOST_TEST(to_string(shape.with_batch(2)) == "2x3x5x7");
  BOOST_TEST(Shape{}.elements() == 1);
}

BOOST_AUTO_TEST_CASE(an_image_is_a_shape_of_three_axes) {
  const ImageShape image{.channels = 3, .height = 5, .width = 7};

  BOOST_TEST((image.shape() == Shape{3, 5, 7}));
  BOOST_TEST((image_shape(image.shape()) == image));
  for (const Shape& other : {Shape{12}, Shape{4, 3}, Shape{1, 3, 5, 7}}) {
    BOOST_CHECK_EXCEPTION(static_cast<void>(image_shape(other)), Error, [&](const Error& error) {
      return error.status() == ExitStatus::usage &&
             std::string(error.what()).find(to_string(other)) != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(error_carries_status_and_text) {
  try {
    fail(ExitStatus::usage, "--lr is {} (it must be positive)", -1);
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == 64);
    BOOST_TEST(std::string(error.what()) == "--lr is -1 (it must be positive)");
  }
}

namespace {
int destroyed = 0;
struct CountingTraits {
  using Handle = int;
  static Handle null() { return -1; }
  static void destroy(Handle) noexcept { ++destroyed; }
};
}  // namespace

BOOST_AUTO_TEST_CASE(moved_from_handle_is_empty) {
  {
    UniqueHandle<CountingTraits> a(3);
    UniqueHandle<CountingTraits> b(std::move(a));
    BOOST_TEST(!a);
    BOOST_TEST(b.get() == 3);
    a = std::move(b);
    BOOST_TEST(a.get() == 3);
  }
  BOOST_TEST(destroyed == 1);
}

BOOST_AUTO_TEST_CASE(aligned_buffer_is_zeroed_and_aligned) {
  AlignedBuffer<float> buffer(1000);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
  for (const float value : buffer.span()) BOOST_REQUIRE_EQUAL(value, 0.0F);
}

BOOST_AUTO_TEST_CASE(bfloat16_keeps_its_own_values_and_rounds_others_to_the_nearest) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {  // every finite value, with its successor
    const auto value = std::bit_cast<float>(bits << 16);
    const auto next = std::bit_cast<float>((bits + 1) << 16);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const auto middle = std::bit_cast<float>((bits << 16) | 0x8000U);
    const float below = std::nextafter(middle, 0.0F);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    BOOST_REQUIRE(float{Bfloat16(value)} == value);
    BOOST_REQUIRE(float{Bfloat16(-value)} == -value);
    BOOST_REQUIRE(Bfloat16(middle).bits == even);
    BOOST_REQUIRE(float{Bfloat16(below)} == value);
    BOOST_REQUIRE(float{Bfloat16(above)} == next);
  }
  BOOST_TEST(std::isnan(float{Bfloat16(std::numeric_limits<float>::quiet_NaN())}));
  BOOST_TEST(std::isnan(float{Bfloat16(std::bit_cast<float>(0xFF800001U))}));
  BOOST_TEST(std::isinf(float{Bfloat16(std::numeric_limits<float>::max())}));
}

BOOST_AUTO_TEST_CASE(float16_keeps_its_own_values_and_rounds_others_to_the_nearest) {
  // By the definition, in double: (1 + m/1024) * 2^(e-15), or m * 2^-24.
  const auto value_of = [](std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double significand = bits & 0x3FFU;
    return static_cast<float>(exponent == 0 ? std::ldexp(significand, -24)
                                            : std::ldexp(1024 + significand, exponent - 25));
  };
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float value = value_of(bits);
    const float next = value_of(bits + 1);
    const float middle = value + (next - value) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    BOOST_REQUIRE(float{Float16(value)} == value);
    BOOST_REQUIRE(float{Float16(-value)} == -value);
    BOOST_REQUIRE(Float16(value).bits == bits);
    BOOST_REQUIRE(Float16(middle).bits == even);
    BOOST_REQUIRE(float{Float16(std::nextafter(middle, 0.0F))} == value);
    BOOST_REQUIRE(float{Float16(std::nextafter(middle, 1e9F))} == next);
  }
  BOOST_TEST(float{Float16(65504.0F)} == 65504.0F);
  BOOST_TEST(float{Float16(std::nextafter(65520.0F, 0.0F))} == 65504.0F);
  BOOST_TEST(std::isinf(float{Float16(65520.0F)}));
  BOOST_TEST(std::isinf(float{Float16(-std::numeric_limits<float>::infinity())}));
  BOOST_TEST(float{Float16(-1e30F)} < 0);
  BOOST_TEST(float{Float16(std::numeric_limits<float>::denorm_min())} == 0.0F);
  BOOST_TEST(std::isnan(float{Float16(std::numeric_limits<float>::quiet_NaN())}));
  BOOST_TEST(std::isnan(float{Float16(std::bit_cast<float>(0xFF800001U))}));
}

BOOST_AUTO_TEST_CASE(a_function_ref_calls_the_function_it_refers_to) {
  int calls = 0;
  const auto count = [&calls](int by) { return calls += by; };
  const auto twice = [](FunctionRef<int(int)> call) { return call(2) + call(3); };
  BOOST_TEST(twice(count) == 2 + 5);
  BOOST_TEST(twice([&calls, factor = 10](int by) mutable { return calls += factor++ * by; }) ==
             25 + 58);
  BOOST_TEST(calls == 58);
}
