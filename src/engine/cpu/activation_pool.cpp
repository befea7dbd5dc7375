#include "activation_pool.hpp"

#include <algorithm>

namespace lockstep::cpu {

void PlacedBuffers::place(std::byte* base) {
  for (Place& place : memories) {
    place.memory.set_data_handle(base + plan.offsets[static_cast<std::size_t>(place.buffer)] +
                                 place.offset);
  }
}

int ActivationPool::attach(std::size_t bytes, Rebind rebind) {
  if (bytes > buffer_.size()) {
    buffer_ = {};  // first free, so that the two never exist at once
    buffer_ = AlignedBuffer<std::byte>(bytes);
    for (auto& [key, rebind_other] : programs_) rebind_other(buffer_.data());
  }
  rebind(buffer_.data());
  programs_.emplace_back(next_key_, std::move(rebind));
  return next_key_++;
}

void ActivationPool::detach(int key) {
  std::erase_if(programs_, [key](const auto& program) { return program.first == key; });
}

}  // namespace lockstep::cpu
