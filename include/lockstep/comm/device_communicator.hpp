#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Collectives over values in a device's memory, in the order of one compute stream: each works on
/// what was queued there before its start, and what is queued after wait() works on its result.
/// The host waits only in the blocking collectives and where it synchronizes. Values of the host
/// (and so agreement.cpp's functions) go over the host's communicator.
///
/// wait() returns when the result is ordered before what comes next in the compute stream; test()
/// is true when the result is there. After an Error no further collective is possible.
class DeviceCommunicator : public Communicator {
 public:
  /// Looks for errors that came up since the last call, and does not wait.
  virtual void check() = 0;
  /// Until all that was queued in the compute stream is done, looking for errors meanwhile; an
  /// Error(internal) once it takes longer than the time-out.
  void synchronize() override = 0;
  void synchronize_until(FunctionRef<bool()> reached) override = 0;
};

}  // namespace lockstep
