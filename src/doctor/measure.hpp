#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/doctor/facts.hpp"
#include "mailbox.hpp"
#include "routes.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

/// What is measured on one rank, or between two.
namespace lockstep::doctor {

/// How one rank reaches another, by MPI.
struct Passage {
  double latency = 0;
  double bandwidth = 0;
  std::string error = {};
};
/// Both call it.
[[nodiscard]] Passage measure_passage(Mailbox& mailbox, int other,
                                      std::chrono::duration<double> limit);

/// Each address of another node, in turn; the time of all is bounded by a few limits.
struct RouteTarget {
  std::vector<InterfaceAddress> addresses;
  int port = 0;
  std::string greeting;
};
[[nodiscard]] std::vector<RouteFacts> measure_routes(const RouteTarget& target,
                                                     std::chrono::milliseconds limit);

/// Seconds since the epoch by the host's clock.
[[nodiscard]] double wall_clock();

/// What this process is and sees.
[[nodiscard]] RankFacts measure_rank(int rank, const std::string& node);

/// Opens a shard of split train and reads some of it; nodes of other numbers take other shards.
[[nodiscard]] DataFacts measure_data(const std::string& directory, const std::string& node,
                                     int number);

/// A directory of its own where --run-dir is or would be, for as long as the object lives; it holds
/// a file and a lock for other nodes to find.
class RunDirectoryProbe final {
 public:
  explicit RunDirectoryProbe(const std::string& run_dir);
  ~RunDirectoryProbe();
  RunDirectoryProbe(const RunDirectoryProbe&) = delete;
  RunDirectoryProbe& operator=(const RunDirectoryProbe&) = delete;

  [[nodiscard]] const RunDirectoryFacts& facts() const noexcept { return facts_; }
  /// Empty where it could not be made.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The rest of `facts` as they are asked for.
  [[nodiscard]] SpaceFacts measure_space(SpaceFacts facts) const;

 private:
  void write();
  void lock();

  RunDirectoryFacts facts_;
  std::string path_;
  Descriptor lock_;
};
/// Network file systems may show a new file to other nodes a little later.
inline constexpr auto longest_look = std::chrono::seconds(5);
/// From another node; waits for the file for `longest_look`.
[[nodiscard]] SharedDirectoryFacts look_into_run_directory(const std::string& probe_path,
                                                           const std::string& node);

}  // namespace lockstep::doctor
