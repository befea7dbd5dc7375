#include "chunked_sum.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

double squared_norm(std::span<const float> gradients) {
  return chunked_sum(gradients.size(), [&](std::size_t begin, std::size_t count) {
    return sum_of_squares(gradients.data() + begin, count);
  });
}

}  // namespace lockstep
