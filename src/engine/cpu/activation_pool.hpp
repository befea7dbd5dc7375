#pragma once

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/memory_plan.hpp"

#include <dnnl.hpp>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep::cpu {

/// A program's memory objects, by planned buffer.
struct PlacedBuffers {
  struct Place {
    dnnl::memory memory;
    int buffer;
    std::size_t offset = 0;  ///< bytes into the buffer
  };
  std::vector<Place> memories;
  MemoryPlan plan;
  /// Points every memory object at its place in an allocation.
  void place(std::byte* base);
};

/// The one allocation that all programs of an engine compute in, as large as the largest needs. It
/// grows only while a program is compiled, and then tells those that were there.
class ActivationPool final {
 public:
  using Rebind = std::function<void(std::byte* base)>;

  /// Registers a program, which is bound at once; returns the key to detach it by. Error(usage)
  /// where there is not so much memory.
  int attach(std::size_t bytes, Rebind rebind);
  void detach(int key);

 private:
  void resize(std::size_t bytes);

  AlignedBuffer<std::byte> buffer_;
  std::vector<std::pair<int, Rebind>> programs_;
  int next_key_ = 0;
};

}  // namespace lockstep::cpu
