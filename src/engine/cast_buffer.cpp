#include "lockstep/engine/cast_buffer.hpp"

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

#include "vector_loop.hpp"

#include <cstddef>

namespace lockstep {
namespace {

template <typename T>
void cast_to(std::span<const float> values, std::uint16_t* to) {
  const float* const from = values.data();
  vector_loop(std::ssize(values), [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
    for (std::ptrdiff_t i = begin; i < end; ++i) to[i] = T(from[i]).bits;
  });
}

template <typename T>
void cast_from(const std::uint16_t* from, std::span<float> values) {
  float* const to = values.data();
  vector_loop(std::ssize(values), [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      T value;
      value.bits = from[i];
      to[i] = float{value};
    }
  });
}

template <typename T>
class HostCastBuffer final : public CastBuffer {
 public:
  explicit HostCastBuffer(std::size_t count) : values_(count) {}
  [[nodiscard]] std::span<std::uint16_t> values() noexcept override { return values_.span(); }
  void store(std::span<const float> values, std::size_t at) override {
    cast_to<T>(values, data(at));
  }
  void load(std::size_t at, std::span<float> values) override { cast_from<T>(data(at), values); }

 private:
  AlignedBuffer<std::uint16_t> values_;
};

}  // namespace

void cast_on_host(std::span<const float> values, Precision type, std::uint16_t* to) {
  if (type == Precision::fp16) return cast_to<Float16>(values, to);
  cast_to<Bfloat16>(values, to);
}

std::shared_ptr<CastBuffer> make_host_cast_buffer(Precision type, std::size_t count) {
  if (type == Precision::fp16) return std::make_shared<HostCastBuffer<Float16>>(count);
  return std::make_shared<HostCastBuffer<Bfloat16>>(count);
}

}  // namespace lockstep
