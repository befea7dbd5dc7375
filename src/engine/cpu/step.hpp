#pragma once

#include "onednn.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cpu {

/// One bound step of a compiled program. run() allocates, looks up and decides nothing.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run() = 0;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Called when the memory objects have new addresses.
  virtual void bind() {}
};

/// Calls a loop with the addresses of tensors' values; null for an empty one.
class LoopStep final : public Step {
 public:
  using Addresses = std::vector<void*>;
  using Loop = std::function<void(const Addresses&)>;
  LoopStep(std::string name, std::vector<dnnl::memory> memories, Loop loop)
      : name_(std::move(name)),
        memories_(std::move(memories)),
        addresses_(memories_.size()),
        loop_(std::move(loop)) {}
  void run() override { loop_(addresses_); }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void bind() override;

 private:
  std::string name_;
  std::vector<dnnl::memory> memories_;
  Addresses addresses_;
  Loop loop_;
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
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  std::string name_;
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<Argument> owners_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Tensors of an element-wise step have one type, fp32 or bf16; arithmetic is in fp32.

/// target = left + right, elementwise over all values; padding stays zero. May be in place. With
/// `relu`, negative sums become zero.
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
  [[nodiscard]] std::string_view name() const noexcept override { return "add"; }
  void bind() override;

 private:
  template <typename T>
  void add() const;

  Operands operands_;
  std::ptrdiff_t size_;
  bool bf16_;
  const void* left_ = nullptr;
  const void* right_ = nullptr;
  void* target_ = nullptr;
};

/// target = max(source, 0); may be in place.
class ReluStep final : public Step {
 public:
  ReluStep(dnnl::memory source, dnnl::memory target);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "relu"; }
  void bind() override;

 private:
  template <typename T>
  void relu() const;

  dnnl::memory source_memory_;
  dnnl::memory target_memory_;
  std::ptrdiff_t size_;
  bool bf16_;
  const void* source_ = nullptr;
  void* target_ = nullptr;
};

/// target = gradient (plus addend) where the forward output is positive, else 0. May overwrite the
/// gradient or the addend.
class ReluBackwardStep final : public Step {
 public:
  struct Operands {
    dnnl::memory output;
    dnnl::memory gradient;
    dnnl::memory addend;  ///< may be empty
    dnnl::memory target;
  };
  explicit ReluBackwardStep(Operands operands);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override {
    return operands_.addend ? "add and gradient of relu" : "gradient of relu";
  }
  void bind() override;

 private:
  template <typename T>
  void mask() const;
  template <typename T>
  void add_and_mask() const;

  Operands operands_;
  std::ptrdiff_t size_;
  bool bf16_;
  const void* output_ = nullptr;
  const void* gradient_ = nullptr;
  const void* addend_ = nullptr;
  void* target_ = nullptr;
};

}  // namespace lockstep::cpu
