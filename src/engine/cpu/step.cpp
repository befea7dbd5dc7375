#include "step.hpp"

#include <cassert>

namespace lockstep::cpu {
namespace {

std::ptrdiff_t floats_of(const dnnl::memory& memory) {
  return static_cast<std::ptrdiff_t>(padded_size(memory.get_desc()));
}

float* data_of(const dnnl::memory& memory) {
  return static_cast<float*>(memory.get_data_handle());
}

}  // namespace

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
  // The C function: the C++ one builds two containers a call.
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    fail(ExitStatus::internal, "oneDNN failed to execute {} (status {})", name_,
         static_cast<int>(status));
  }
}

AddStep::AddStep(Operands operands)
    : operands_(std::move(operands)), size_(floats_of(operands_.target)) {
  assert(floats_of(operands_.left) == size_ && floats_of(operands_.right) == size_);
  bind();
}

void AddStep::bind() {
  left_ = data_of(operands_.left);
  right_ = data_of(operands_.right);
  target_ = data_of(operands_.target);
}

void AddStep::run() {
  const float* left = left_;
  const float* right = right_;
  float* target = target_;
  if (operands_.relu) {
#pragma omp parallel for simd schedule(static)
    for (std::ptrdiff_t i = 0; i < size_; ++i) {
      const float sum = left[i] + right[i];
      target[i] = sum < 0.0F ? 0.0F : sum;  // so written, NaN stays NaN
    }
  } else {
#pragma omp parallel for simd schedule(static)
    for (std::ptrdiff_t i = 0; i < size_; ++i) target[i] = left[i] + right[i];
  }
}

ReluStep::ReluStep(dnnl::memory source, dnnl::memory target)
    : source_memory_(std::move(source)),
      target_memory_(std::move(target)),
      size_(floats_of(target_memory_)) {
  bind();
}

void ReluStep::bind() {
  source_ = data_of(source_memory_);
  target_ = data_of(target_memory_);
}

void ReluStep::run() {
  const float* source = source_;
  float* target = target_;
#pragma omp parallel for simd schedule(static)
  for (std::ptrdiff_t i = 0; i < size_; ++i) target[i] = source[i] < 0.0F ? 0.0F : source[i];
}

ReluBackwardStep::ReluBackwardStep(Operands operands)
    : operands_(std::move(operands)), size_(floats_of(operands_.target)) {
  bind();
}

void ReluBackwardStep::bind() {
  output_ = data_of(operands_.output);
  gradient_ = data_of(operands_.gradient);
  target_ = data_of(operands_.target);
}

void ReluBackwardStep::run() {
  const float* output = output_;
  const float* gradient = gradient_;
  float* target = target_;
#pragma omp parallel for simd schedule(static)
  for (std::ptrdiff_t i = 0; i < size_; ++i) target[i] = output[i] > 0.0F ? gradient[i] : 0.0F;
}

}  // namespace lockstep::cpu
