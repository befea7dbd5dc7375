#include "lockstep/comm/communicator.hpp"

#include "backoff.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

void Communicator::synchronize_until(FunctionRef<bool()> reached) {
  for (Backoff backoff(std::chrono::hours(24)); !reached();) {
    static_cast<void>(backoff.pause());  // no limit here: the watchdog ends a wait that hangs
  }
}

void Communicator::require_peer(int peer) const {
  if (peer >= 0 && peer < size() && peer != rank()) return;
  fail(ExitStatus::internal,
       "rank {} of {} was to send to or receive from rank {} (a message goes to another rank of "
       "the communicator); look at what chose the rank",
       rank(), size(), peer);
}

}  // namespace lockstep
