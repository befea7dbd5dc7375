#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/engine.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Broadcasts `unsharded` from rank 0's host memory (empty elsewhere) to `arena` in every rank's
/// engine memory, in pieces.
inline void broadcast_arena(Engine& engine, Communicator& host, std::span<float> unsharded,
                            std::span<float> arena) {
  constexpr std::size_t piece_values = std::size_t{1} << 20;
  std::vector<float> received(host.rank() == 0 ? 0 : std::min(arena.size(), piece_values));
  for (std::size_t begin = 0; begin < arena.size(); begin += piece_values) {
    const std::size_t size = std::min(piece_values, arena.size() - begin);
    const std::span<float> values =
        host.rank() == 0 ? unsharded.subspan(begin, size) : std::span(received).first(size);
    host.broadcast(values);
    engine.memory().write(values, arena.subspan(begin, size));
  }
}

}  // namespace lockstep
