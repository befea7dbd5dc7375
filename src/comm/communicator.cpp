#include "lockstep/comm/communicator.hpp"

#include "backoff.hpp"

namespace lockstep {

void Communicator::synchronize_until(FunctionRef<bool()> reached) {
  for (Backoff backoff(std::chrono::hours(24)); !reached();) {
    static_cast<void>(backoff.pause());  // no limit here: the watchdog ends a wait that hangs
  }
}

}  // namespace lockstep
