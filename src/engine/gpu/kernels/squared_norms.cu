#include "tensor_sums.hpp"

namespace lockstep::gpu {
namespace {

struct ArenaValues {
  enum : std::size_t { arenas_read = 1 };
  const float* arena;
  LOCKSTEP_HOST_DEVICE Floats<static_cast<int>(arena_block)> operator()(std::int64_t block) const {
    constexpr int size = static_cast<int>(arena_block);
    return load<size>(arena + block * size);
  }
};

}  // namespace

void squared_norms(Stream stream, const float* arena, std::size_t blocks,
                   const std::uint32_t* tensor_of_block, std::size_t tensors, double* sums,
                   void* workspace) {
  sum_squares(stream, ArenaValues{arena}, blocks, tensor_of_block, tensors, sums, workspace);
}

std::size_t squared_norms_workspace(std::size_t blocks, std::size_t tensors) {
  return tensor_sums::Workspace::bytes(blocks, tensors);
}

}  // namespace lockstep::gpu
