#pragma once

#include "onednn.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cpu {

/// One bound unit of work of a compiled program. run() allocates, looks up and decides nothing.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run() = 0;
  /// The memory objects have got new addresses.
  virtual void bind() {}
};

/// A oneDNN primitive with its arguments.
class PrimitiveStep final : public Step {
 public:
  struct Argument {
    int index;
    dnnl::memory memory;
  };
  PrimitiveStep(std::string name, dnnl::primitive primitive, dnnl::stream stream,
                std::vector<Argument> arguments);
  void run() override;

 private:
  std::string name_;
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<Argument> owners_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// target = left + right, elementwise with padding (which is zero and stays so); may be in place.
/// With `relu`, negative sums become zero.
class AddStep final : public Step {
 public:
  struct Operands {
    dnnl::memory left;
    dnnl::memory right;
    dnnl::memory target;
    bool relu = false;
  };
  explicit AddStep(Operands operands);
  void run() override;
  void bind() override;

 private:
  Operands operands_;
  std::ptrdiff_t size_;
  const float* left_ = nullptr;
  const float* right_ = nullptr;
  float* target_ = nullptr;
};

/// target = max(source, 0); may be in place.
class ReluStep final : public Step {
 public:
  ReluStep(dnnl::memory source, dnnl::memory target);
  void run() override;
  void bind() override;

 private:
  dnnl::memory source_memory_;
  dnnl::memory target_memory_;
  std::ptrdiff_t size_;
  const float* source_ = nullptr;
  float* target_ = nullptr;
};

/// target = gradient where the forward output is positive, else 0; may be in place over gradient.
class ReluBackwardStep final : public Step {
 public:
  struct Operands {
    dnnl::memory output;
    dnnl::memory gradient;
    dnnl::memory target;
  };
  explicit ReluBackwardStep(Operands operands);
  void run() override;
  void bind() override;

 private:
  Operands operands_;
  std::ptrdiff_t size_;
  const float* output_ = nullptr;
  const float* gradient_ = nullptr;
  float* target_ = nullptr;
};

}  // namespace lockstep::cpu
