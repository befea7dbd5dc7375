#pragma once

#include "device_queues.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::gpu {

/// Measures how long a device works on forward and backward, by events that are read later, so the
/// host never waits. A lap is a stretch of queued work without waits for other ranks.
class DeviceStopwatch final {
 public:
  /// The device must outlive it.
  explicit DeviceStopwatch(DeviceQueues& device);

  /// Begins a lap at the current end of the work queue, unless one runs; not in a recording.
  void start();
  /// Ends the lap, if one runs.
  void stop();
  /// Stops; the laps since the last call are of one forward and backward.
  void stop_backward();
  /// Seconds of all backwards that the device has ended since the last call, with their forwards;
  /// 0 if there is none, or if more laps were queued than there are events for.
  [[nodiscard]] double take();

 private:
  struct Lap {
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
    bool is_last = false;  ///< of a forward and backward
  };
  static constexpr std::size_t most = 512;
  [[nodiscard]] Lap& at(std::size_t position) noexcept { return laps_[position % most]; }
  /// Reads the laps that have ended.
  void collect();

  DeviceQueues& device_;
  std::vector<Lap> laps_;  ///< a ring
  // Positions in the ring, increasing forever.
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  bool running_ = false;
  bool lost_ = false;  ///< laps since take()
  double open_ = 0;    ///< seconds of laps after the last backward that has ended
  double closed_ = 0;  ///< seconds of those before, since take()
};

}  // namespace lockstep::gpu
