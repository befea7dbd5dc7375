#include "unique_ids.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {

std::vector<int> id_leaders(int ranks, int ranks_per_id) {
  const int blocks = (ranks + ranks_per_id - 1) / ranks_per_id;
  std::vector<int> leaders(static_cast<std::size_t>(blocks));
  for (int block = 0; block < blocks; ++block) {
    leaders[static_cast<std::size_t>(block)] =
        block * (ranks / blocks) + std::min(block, ranks % blocks);
  }
  return leaders;
}

std::vector<NcclUniqueId> exchange_unique_ids(
    Rendezvous& rendezvous, const Rendezvous::Place& place, Rendezvous::Outcome mine,
    std::span<const int> leaders, const std::function<std::string(NcclUniqueId&)>& make) {
  std::vector<NcclUniqueId> ids(leaders.size());
  for (std::size_t i = 0; i < ids.size() && mine.text.empty(); ++i) {
    if (leaders[i] == rendezvous.rank()) mine.text = make(ids[i]);
  }
  if (!mine.text.empty()) mine.arrival = Rendezvous::Arrival::failed;
  // A message carries the ids of a few leaders.
  for (std::size_t begin = 0; begin < ids.size(); begin += Rendezvous::most_leaders) {
    const std::size_t count = std::min(Rendezvous::most_leaders, ids.size() - begin);
    rendezvous.meet(place, mine, std::as_writable_bytes(std::span(ids).subspan(begin, count)),
                    leaders.subspan(begin, count));
  }
  return ids;
}

}  // namespace lockstep
