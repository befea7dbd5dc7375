#include "host_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::gpu {
namespace {

const char* name_of(MemoryPlace place) {
  switch (place) {
    case MemoryPlace::device:
      return "device memory";
    case MemoryPlace::exchanged:
      return "device memory for communication";
    case MemoryPlace::host:
      return "host memory";
  }
  return "";
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

[[noreturn]] void end_program(const std::string& message) noexcept {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

/// The guarded memory of all devices, for the handler.
struct Guarded {
  std::mutex mutex;
  std::vector<const HostMemory*> all;
  struct sigaction former {};
};
Guarded& guarded() {
  static Guarded instance;
  return instance;
}

void handle_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const HostMemory* const memory : guarded().all) {
    if (memory->explain(address)) break;
  }
  // The access fails again, and the former handler runs.
  ::sigaction(SIGSEGV, &guarded().former, nullptr);
}

void watch(const HostMemory& memory) {
  const std::lock_guard lock(guarded().mutex);
  guarded().all.push_back(&memory);
  struct sigaction action {};
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  struct sigaction former {};
  ::sigaction(SIGSEGV, &action, &former);
  if (former.sa_sigaction != handle_fault) guarded().former = former;
}
void unwatch(const HostMemory& memory) noexcept {
  const std::lock_guard lock(guarded().mutex);
  std::erase(guarded().all, &memory);
}

}  // namespace

HostMemory::HostMemory(HostMemoryGuard guard) : guard_(guard) {
  if (guard == HostMemoryGuard::on) watch(*this);
}

HostMemory::~HostMemory() {
  if (guard_ == HostMemoryGuard::on) unwatch(*this);
  for (const auto& block : blocks_) free(block);
  for (const auto& block : released_) free(block);
}

void* HostMemory::allocate(std::size_t bytes, MemoryPlace place) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (is_guarded(place)) {
    memory = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
  } else {
    memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (memory == nullptr) throw std::bad_alloc();
  }
  std::memset(memory, 0xFF, bytes);
  if (is_guarded(place) && accesses_ == 0) ::mprotect(memory, whole_pages(bytes), PROT_NONE);
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, place, ++allocations_};
  if (place == MemoryPlace::host) return memory;
  bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  if (place == MemoryPlace::exchanged) exchanged_bytes_ += bytes;
  return memory;
}

void HostMemory::release(void* memory, std::size_t bytes, MemoryPlace place) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (block == blocks_.end()) {
    end_program(fmt::format("{} is released that is not allocated", name_of(place)));
  }
  if (block->second.place != place || block->second.bytes != bytes) {
    end_program(fmt::format("allocation {} of {} bytes of {} is released as {} of {} bytes",
                            block->second.number, block->second.bytes, name_of(block->second.place),
                            name_of(place), bytes));
  }
  if (place != MemoryPlace::host) bytes_ -= bytes;
  if (place == MemoryPlace::exchanged) exchanged_bytes_ -= bytes;
  if (is_guarded(place)) {
    // Stays reserved, without its pages, so that a later access is named.
    ::madvise(memory, whole_pages(bytes), MADV_DONTNEED);
    ::mprotect(memory, whole_pages(bytes), PROT_NONE);
    released_.insert(blocks_.extract(block));
  } else {
    free(*block);
    blocks_.erase(block);
  }
}

void HostMemory::release_host(void* memory) noexcept {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto* const block = find(blocks_, reinterpret_cast<std::uintptr_t>(memory));
    if (block != nullptr) bytes = block->second.bytes;
  }
  release(memory, bytes, MemoryPlace::host);
}

void HostMemory::free(const Blocks::value_type& block) noexcept {
  void* const memory = reinterpret_cast<void*>(block.first);
  if (is_guarded(block.second.place)) {
    ::munmap(memory, whole_pages(block.second.bytes));
  } else {
    std::free(memory);
  }
}

const HostMemory::Blocks::value_type* HostMemory::find(const Blocks& blocks,
                                                       std::uintptr_t address) noexcept {
  const auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  const auto& block = *std::prev(after);
  return address < block.first + block.second.bytes ? &block : nullptr;
}

void HostMemory::require_device(const void* memory, std::size_t bytes, const char* call) const {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto* const block = find(blocks_, address);
  if (block == nullptr || block->second.place == MemoryPlace::host) {
    throw std::logic_error(fmt::format("{}: {} is not device memory", call, memory));
  }
  if (address + bytes > block->first + block->second.bytes) {
    throw std::logic_error(
        fmt::format("{}: {} bytes from byte {} of allocation {}, which has {} bytes", call, bytes,
                    address - block->first, block->second.number, block->second.bytes));
  }
}

void HostMemory::require_host(const void* memory, std::size_t bytes, const char* call) const {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto* const block = find(blocks_, reinterpret_cast<std::uintptr_t>(memory));
  if (block != nullptr && block->second.place != MemoryPlace::host) {
    throw std::logic_error(fmt::format("{}: {} is device memory", call, memory));
  }
}

void HostMemory::open() {
  if (guard_ == HostMemoryGuard::off) return;
  const std::lock_guard lock(mutex_);
  if (accesses_++ == 0) protect(PROT_READ | PROT_WRITE);
}
void HostMemory::close() {
  if (guard_ == HostMemoryGuard::off) return;
  const std::lock_guard lock(mutex_);
  if (--accesses_ == 0) protect(PROT_NONE);
}
void HostMemory::protect(int protection) {
  // Adjacent blocks in one call.
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const auto flush = [&] {
    if (end != begin) ::mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
  };
  for (const auto& [address, block] : blocks_) {
    if (block.place == MemoryPlace::host) continue;
    if (address != end) {
      flush();
      begin = address;
    }
    end = address + whole_pages(block.bytes);
  }
  flush();
}

bool HostMemory::explain(std::uintptr_t address) const noexcept {
  const auto* block = find(blocks_, address);
  const bool released = block == nullptr;
  if (released) block = find(released_, address);
  if (block == nullptr) return false;
  const auto& [bytes, place, number] = block->second;
  std::array<char, 200> text{};
  const int length = std::snprintf(
      text.data(), text.size(),
      "byte %zu of allocation %d (%zu bytes of %s%s) is accessed outside of queued work\n",
      static_cast<std::size_t>(address - block->first), number, bytes, name_of(place),
      released ? ", released" : "");
  static_cast<void>(!::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length)));
  return true;
}

}  // namespace lockstep::gpu
