#include "step.hpp"

#include "../vector_loop.hpp"
#include "lockstep/core/bfloat16.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <limits>

namespace lockstep::cpu {
namespace {

std::ptrdiff_t values_of(const dnnl::memory& memory) {
  return static_cast<std::ptrdiff_t>(padded_size(memory.get_desc()));
}

void* data_of(const dnnl::memory& memory) {
  return memory.get_data_handle();
}

bool is_bf16(const dnnl::memory& memory) {
  return type_of(memory.get_desc()) == DataType::bf16;
}

// Writes bits instead of selecting between loaded values, which compilers do not vectorise.
LOCKSTEP_INLINED inline void store(float& to, float value) {
  to = value;
}
LOCKSTEP_INLINED inline void store(Bfloat16& to, float value) {
  to.bits = Bfloat16(value).bits;
}
/// Stores zero unless `keep`.
LOCKSTEP_INLINED inline void store_if(bool keep, float& to, float value) {
  to = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0U - std::uint32_t{keep}));
}
LOCKSTEP_INLINED inline void store_if(bool keep, Bfloat16& to, float value) {
  to.bits = static_cast<std::uint16_t>(Bfloat16(value).bits & (0U - std::uint32_t{keep}));
}

}  // namespace

void LoopStep::bind() {
  std::ranges::transform(memories_, addresses_.begin(), [](const dnnl::memory& memory) {
    return memory ? memory.get_data_handle() : nullptr;
  });
}

PrimitiveStep::PrimitiveStep(std::string name, dnnl::primitive primitive, dnnl::stream stream,
                             std::vector<Argument> arguments)
    : name_(std::move(name)),
      primitive_(std::move(primitive)),
      stream_(std::move(stream)),
      owners_(std::move(arguments)) {
  for (const Argument& argument : owners_) {
    arguments_.push_back({argument.index, argument.memory.get()});
  }
}

void PrimitiveStep::run() {
  // The C function: the C++ one builds two containers per call.
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    fail(ExitStatus::internal, "oneDNN failed to execute {} (status {})", name_,
         static_cast<int>(status));
  }
}

AddStep::AddStep(Operands operands)
    : operands_(std::move(operands)),
      size_(values_of(operands_.target)),
      bf16_(is_bf16(operands_.target)) {
  assert(values_of(operands_.left) == size_ && values_of(operands_.right) == size_);
  bind();
}

void AddStep::bind() {
  left_ = data_of(operands_.left);
  right_ = data_of(operands_.right);
  target_ = data_of(operands_.target);
}

template <typename T>
void AddStep::add() const {
  const T* left = static_cast<const T*>(left_);
  const T* right = static_cast<const T*>(right_);
  T* target = static_cast<T*>(target_);
  const float least = operands_.relu ? 0.0F : -std::numeric_limits<float>::infinity();
  vector_loop(size_, [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
#pragma omp simd
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      const float sum = float{left[i]} + float{right[i]};
      store(target[i], sum < least ? least : sum);  // this form keeps NaN
    }
  });
}

void AddStep::run() {
  bf16_ ? add<Bfloat16>() : add<float>();
}

ReluStep::ReluStep(dnnl::memory source, dnnl::memory target)
    : source_memory_(std::move(source)),
      target_memory_(std::move(target)),
      size_(values_of(target_memory_)),
      bf16_(is_bf16(target_memory_)) {
  bind();
}

void ReluStep::bind() {
  source_ = data_of(source_memory_);
  target_ = data_of(target_memory_);
}

template <typename T>
void ReluStep::relu() const {
  const T* source = static_cast<const T*>(source_);
  T* target = static_cast<T*>(target_);
  vector_loop(size_, [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
#pragma omp simd
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      const float value{source[i]};
      store(target[i], value < 0.0F ? 0.0F : value);
    }
  });
}

void ReluStep::run() {
  bf16_ ? relu<Bfloat16>() : relu<float>();
}

ReluBackwardStep::ReluBackwardStep(Operands operands)
    : operands_(std::move(operands)),
      size_(values_of(operands_.target)),
      bf16_(is_bf16(operands_.target)) {
  bind();
}

void ReluBackwardStep::bind() {
  output_ = data_of(operands_.output);
  gradient_ = data_of(operands_.gradient);
  addend_ = operands_.addend ? data_of(operands_.addend) : nullptr;
  target_ = data_of(operands_.target);
}

template <typename T>
void ReluBackwardStep::mask() const {
  const T* output = static_cast<const T*>(output_);
  const T* gradient = static_cast<const T*>(gradient_);
  T* target = static_cast<T*>(target_);
  vector_loop(size_, [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
#pragma omp simd
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      store_if(float{output[i]} > 0.0F, target[i], float{gradient[i]});
    }
  });
}

template <typename T>
void ReluBackwardStep::add_and_mask() const {
  const T* output = static_cast<const T*>(output_);
  const T* gradient = static_cast<const T*>(gradient_);
  const T* addend = static_cast<const T*>(addend_);
  T* target = static_cast<T*>(target_);
  vector_loop(size_, [=](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
#pragma omp simd
    for (std::ptrdiff_t i = begin; i < end; ++i) {
      store_if(float{output[i]} > 0.0F, target[i], float{gradient[i]} + float{addend[i]});
    }
  });
}

void ReluBackwardStep::run() {
  if (addend_ == nullptr) {
    bf16_ ? mask<Bfloat16>() : mask<float>();
  } else {
    bf16_ ? add_and_mask<Bfloat16>() : add_and_mask<float>();
  }
}

}  // namespace lockstep::cpu
