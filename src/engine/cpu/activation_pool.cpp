#include "activation_pool.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <new>

namespace lockstep::cpu {

void PlacedBuffers::place(std::byte* base) {
  for (Place& place : memories) {
    place.memory.set_data_handle(base + plan.offsets[static_cast<std::size_t>(place.buffer)] +
                                 place.offset);
  }
}

int ActivationPool::attach(std::size_t bytes, Rebind rebind) {
  if (bytes > buffer_.size()) {
    const std::size_t before = buffer_.size();
    try {
      resize(bytes);
    } catch (const std::bad_alloc&) {
      resize(before);
      fail(ExitStatus::usage,
           "{:.1f} MiB for the network's values cannot be had (this host, or a limit such as "
           "ulimit -v, "
           "does not give them); lower --batch-size and raise --accumulate as much",
           static_cast<double>(bytes) / 0x1p20);
    }
  }
  rebind(buffer_.data());
  programs_.emplace_back(next_key_, std::move(rebind));
  return next_key_++;
}

void ActivationPool::resize(std::size_t bytes) {
  buffer_ = {};  // freed first, so that the two never exist together
  buffer_ = AlignedBuffer<std::byte>(bytes);
  for (auto& [key, rebind] : programs_) rebind(buffer_.data());
}

void ActivationPool::detach(int key) {
  std::erase_if(programs_, [key](const auto& program) { return program.first == key; });
}

}  // namespace lockstep::cpu
