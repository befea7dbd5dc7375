#pragma once

#include "../../../src/engine/gpu/device.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace lockstep::gpu {

enum class HostMemoryGuard {
  off,
  on  ///< only queued work may access device memory; any other access ends the program
};

/// The allocations of a device on the host, filled with NaN. Violations of CUDA's rules throw
/// std::logic_error; in release() they end the program.
///
/// With a guard, each allocation of device memory has pages of its own, which are accessible only
/// while an Access exists, and never again after its release. A message names the allocation that
/// was accessed, before the signal's former handler runs.
class HostMemory final {
 public:
  explicit HostMemory(HostMemoryGuard guard);
  [[nodiscard]] bool is_guarded() const noexcept { return guard_ == HostMemoryGuard::on; }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// Null for no bytes, as from CUDA.
  [[nodiscard]] void* allocate(std::size_t bytes, MemoryPlace place);
  void release(void* memory, std::size_t bytes, MemoryPlace place) noexcept;
  /// The same for host memory, whose releases do not state a size.
  void release_host(void* memory) noexcept;
  /// The range must be in one allocation of device memory.
  void require_device(const void* memory, std::size_t bytes, const char* call) const;
  /// The range must not be in device memory.
  void require_host(const void* memory, std::size_t bytes, const char* call) const;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  [[nodiscard]] std::size_t exchanged_bytes() const noexcept { return exchanged_bytes_; }

  /// Makes device memory accessible.
  class Access final {
   public:
    explicit Access(HostMemory& memory) : memory_(memory) { memory_.open(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    ~Access() { memory_.close(); }

   private:
    HostMemory& memory_;
  };

  /// Writes a message if the address is in guarded memory; for the handler of a signal.
  [[nodiscard]] bool explain(std::uintptr_t address) const noexcept;

 private:
  struct Block {
    std::size_t bytes;
    MemoryPlace place;
    int number;
  };
  using Blocks = std::map<std::uintptr_t, Block>;
  [[nodiscard]] bool is_guarded(MemoryPlace place) const noexcept {
    return guard_ == HostMemoryGuard::on && place != MemoryPlace::host;
  }
  /// The block that contains the address; null if none does.
  [[nodiscard]] static const Blocks::value_type* find(const Blocks& blocks,
                                                      std::uintptr_t address) noexcept;
  void free(const Blocks::value_type& block) noexcept;
  void open();
  void close();
  void protect(int protection);

  HostMemoryGuard guard_;
  mutable std::mutex mutex_;
  Blocks blocks_;
  Blocks released_;  ///< their addresses stay reserved
  int allocations_ = 0;
  int accesses_ = 0;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t exchanged_bytes_ = 0;
};

}  // namespace lockstep::gpu
