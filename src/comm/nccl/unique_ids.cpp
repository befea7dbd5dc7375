#include "unique_ids.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

void UniqueIds::add(std::span<const int> ranks, int count) {
  for (int id = 0; id < count; ++id) {
    const int first = first_of_block(id, count, static_cast<int>(ranks.size()));
    leaders_.push_back(ranks[static_cast<std::size_t>(first)]);
  }
  ids_.resize(leaders_.size());
  begins_.push_back(leaders_.size());
}

void UniqueIds::exchange(Rendezvous& rendezvous, const Rendezvous::Place& place,
                         const std::function<std::string(NcclUniqueId&)>& make) {
  Rendezvous::Outcome made;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (leaders_[i] != rendezvous.rank() || made.arrival != Rendezvous::Arrival::succeeded) continue;
    made.text = make(ids_[i]);
    if (!made.text.empty()) made.arrival = Rendezvous::Arrival::failed;
  }
  // A message carries the ids of a few leaders.
  for (std::size_t begin = 0; begin < ids_.size(); begin += Rendezvous::most_leaders) {
    const std::size_t count = std::min(Rendezvous::most_leaders, ids_.size() - begin);
    rendezvous.meet(place, made, std::as_writable_bytes(std::span(ids_).subspan(begin, count)),
                    std::span(leaders_).subspan(begin, count));
  }
}

}  // namespace lockstep
