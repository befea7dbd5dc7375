#include "lockstep/engine/narrow_buffer.hpp"

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

namespace lockstep {
namespace {

template <typename T>
void narrow_to(std::span<const float> values, std::uint16_t* to) {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = T(values[i]).bits;
}

template <typename T>
class HostNarrowBuffer final : public NarrowBuffer {
 public:
  explicit HostNarrowBuffer(std::size_t count) : values_(count) {}
  [[nodiscard]] std::uint16_t* data(std::size_t at) noexcept override {
    return values_.data() + at;
  }
  void narrow(std::span<const float> values, std::size_t at) override {
    narrow_to<T>(values, data(at));
  }
  void widen(std::size_t at, std::span<float> values) override {
    const std::uint16_t* const from = data(at);
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      value.bits = from[i];
      values[i] = float{value};
    }
  }

 private:
  AlignedBuffer<std::uint16_t> values_;
};

}  // namespace

void narrow_on_host(std::span<const float> values, Precision type, std::uint16_t* to) {
  if (type == Precision::fp16) return narrow_to<Float16>(values, to);
  narrow_to<Bfloat16>(values, to);
}

std::unique_ptr<NarrowBuffer> make_host_narrow_buffer(Precision type, std::size_t count) {
  if (type == Precision::fp16) return std::make_unique<HostNarrowBuffer<Float16>>(count);
  return std::make_unique<HostNarrowBuffer<Bfloat16>>(count);
}

}  // namespace lockstep
