#include "lockstep/comm/communicator.hpp"

#include "backoff.hpp"
#include "lockstep/core/error.hpp"
#include "require_peer.hpp"

namespace lockstep {

void Communicator::synchronize_until(FunctionRef<bool()> reached) {
  for (Backoff backoff(std::chrono::hours(24)); !reached();) {
    static_cast<void>(backoff.pause());  // no limit here: the watchdog ends a wait that hangs
  }
}

void require_peer(const Communicator& comm, int peer) {
  if (peer >= 0 && peer < comm.size() && peer != comm.rank()) return;
  fail(ExitStatus::internal,
       "rank {} of {} was to send to or receive from rank {} (a message goes to another rank of "
       "the communicator); look at what chose the rank",
       comm.rank(), comm.size(), peer);
}

}  // namespace lockstep
