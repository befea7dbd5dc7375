#include "lockstep/comm/communicator.hpp"

#include "patience.hpp"

namespace lockstep {

void Communicator::synchronize_until(FunctionRef<bool()> reached) {
  for (Patience patience(std::chrono::hours(24)); !reached();) {
    static_cast<void>(patience.pause());  // the watchdog is what ends a wait here
  }
}

}  // namespace lockstep
