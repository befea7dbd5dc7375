#include "lockstep/comm/mesh.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep {

int Mesh::size() const noexcept {
  int size = 1;
  for (const Axis& axis : axes_) size *= axis.size;
  return size;
}

std::vector<int> Mesh::ranks(int rank, std::initializer_list<std::string_view> axes) const {
  assert(std::ranges::all_of(axes, [this](std::string_view name) {
    return std::ranges::find(axes_, name, &Axis::name) != axes_.end();
  }));
  std::vector<int> ranks{rank};
  int stride = size();
  for (const Axis& axis : axes_) {
    stride /= axis.size;
    if (std::ranges::find(axes, axis.name) == axes.end()) continue;
    std::vector<int> more;
    more.reserve(ranks.size() * static_cast<std::size_t>(axis.size));
    for (const int each : ranks) {
      const int first = each - each / stride % axis.size * stride;
      for (int place = 0; place < axis.size; ++place) more.push_back(first + place * stride);
    }
    ranks = std::move(more);
  }
  return ranks;
}

std::unique_ptr<Communicator> Mesh::split(Communicator& job,
                                          std::initializer_list<std::string_view> axes) const {
  assert(job.size() == size());
  return job.split(ranks(job.rank(), axes).front(), job.rank());
}

}  // namespace lockstep
