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
    std::size_t offset = 0;  ///< in the buffer, in bytes
  };
  std::vector<Place> memories;
  MemoryPlan plan;
  /// Sets every memory object's address within an allocation.
  void place(std::byte* base);
};

/// The single allocation in which all programs of an engine compute, sized for the largest. It
/// grows only while a program is compiled, and then rebinds the registered programs.
class ActivationPool final {
 public:
  using Rebind = std::function<void(std::byte* base)>;

  /// Registers a program and binds it at once; returns the key for detach(). Error(usage) if there
  /// is not enough memory.
  int attach(std::size_t bytes, Rebind rebind);
  void detach(int key);

 private:
  void resize(std::size_t bytes);

  AlignedBuffer<std::byte> buffer_;
  std::vector<std::pair<int, Rebind>> programs_;
  int next_key_ = 0;
};

}  // namespace lockstep::cpu
