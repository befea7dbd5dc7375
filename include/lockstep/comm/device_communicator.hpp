#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Collectives on device memory, ordered by one compute stream: a collective sees all work queued
/// in the stream before its start, and work queued after wait() sees its result. The host blocks
/// only in blocking collectives and in synchronize calls. For host memory (and so for the functions
/// of agreement.cpp) use the host's communicator.
///
/// Messages are in that order too: one that is sent between two collectives of both ranks must be
/// received between the same two, and all messages of a rank end in the order of their starts.
///
/// wait() returns once the result is ordered before later work in the compute stream; test()
/// returns true once the result is available. After an Error, no further collective is possible.
class DeviceCommunicator : public Communicator {
 public:
  /// Throws errors that occurred since the last call; does not block.
  virtual void check() = 0;
  /// Blocks until all work queued in the compute stream is done, checking for errors meanwhile.
  /// Throws Error(internal) after the wait limit.
  void synchronize() override = 0;
  void synchronize_until(FunctionRef<bool()> reached) override = 0;
};

}  // namespace lockstep
