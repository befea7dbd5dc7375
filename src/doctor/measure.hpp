#pragma once

#include "../compute/module_interface.hpp"
#include "lockstep/comm/mailbox.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/doctor/facts.hpp"
#include "routes.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Measurements on one rank or between two ranks.
namespace lockstep::doctor {

using Clock = Mailbox::Clock;

/// The MPI link from one rank to another.
struct Passage {
  double latency = 0;
  double bandwidth = 0;
  SegmentFacts segments = {};  ///< of this node, meanwhile
  std::string error = {};
  std::vector<RouteFacts> routes = {};  ///< from measure_routes()
};
/// Both ranks must call it.
[[nodiscard]] Passage measure_passage(Mailbox& mailbox, int other,
                                      std::chrono::duration<double> limit);

/// The addresses of another node's listener.
struct RouteTarget {
  std::vector<InterfaceAddress> addresses = {};
  int port = 0;
  std::string greeting = {};
};
/// Tries one address after another, and stops at the deadline.
[[nodiscard]] std::vector<RouteFacts> measure_routes(const RouteTarget& target,
                                                     Clock::time_point deadline);

/// Facts about this process.
[[nodiscard]] RankFacts measure_rank(int rank, const std::string& node);

/// This rank's GPU, opened to measure an all-reduce over the GPUs of all ranks.
class GpuProbe final {
 public:
  /// Throws an Error if the GPU is unusable. Not collective: a hanging driver blocks only one rank.
  GpuProbe(int local_rank, int local_size);

  [[nodiscard]] std::string uuid() const { return module_.identify(*device_).uuid; }
  /// Returns NcclFacts::bandwidth. Collective over MPI_COMM_WORLD. Throws Error(internal) if any
  /// NCCL operation takes longer than `limit`.
  [[nodiscard]] double measure(std::chrono::duration<double> limit);

 private:
  const gpu::ModuleTable& module_;
  std::shared_ptr<gpu::Device> device_;
  gpu::DeviceArray<float> values_;
};

/// Opens a shard of split train and reads a part; `number` (the node's index) selects the shard.
[[nodiscard]] DataFacts measure_data(const std::string& directory, const std::string& node,
                                     int number);

/// A temporary directory where --run-dir is or would be, removed by the destructor. It holds a file
/// and a lock for other nodes to find.
class RunDirectoryProbe final {
 public:
  explicit RunDirectoryProbe(const std::string& run_dir);
  ~RunDirectoryProbe();
  RunDirectoryProbe(const RunDirectoryProbe&) = delete;
  RunDirectoryProbe& operator=(const RunDirectoryProbe&) = delete;

  [[nodiscard]] const RunDirectoryFacts& facts() const noexcept { return facts_; }
  /// Empty if it could not be created.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Adds the measured fields to `facts`.
  [[nodiscard]] SpaceFacts measure_space(SpaceFacts facts) const;

 private:
  void write();
  [[nodiscard]] const char* replace_proof();
  void lock();
  void link();

  RunDirectoryFacts facts_;
  std::string path_;
  std::optional<OpenDirectory> files_;  ///< empty: it could not be created
  Descriptor lock_;
};
/// A network file system may show a new file to other nodes only after a delay.
inline constexpr auto longest_look = std::chrono::seconds(5);
/// Called on another node; waits up to `longest_look` for the file.
[[nodiscard]] SharedDirectoryFacts look_into_run_directory(const std::string& probe_path,
                                                           const std::string& node);

}  // namespace lockstep::doctor
