#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// What the doctor measures. Judging it (judge.hpp) needs no cluster. Times are in seconds, rates
/// in bytes a second; an empty `error` means that all went well.
namespace lockstep::doctor {

/// How one process was started, by its environment before MPI starts: MPI libraries set launchers'
/// variables themselves.
struct LaunchFacts {
  enum class Launcher { none, srun, mpirun };
  Launcher launcher = Launcher::none;
  std::optional<int> started = std::nullopt;    ///< processes, as the launcher says
  std::optional<int> allocated = std::nullopt;  ///< tasks of the allocation around it
  int process = 0;                              ///< this one's number among `started`
  int local_process = 0;                        ///< and on its node
  std::string node = {};                        ///< as Slurm calls it; empty: not told
};
/// `lookup` gives a variable's value, as getenv does.
[[nodiscard]] LaunchFacts read_launch(
    const std::function<std::optional<std::string>(const char*)>& lookup);

/// One process, as it found itself.
struct RankFacts {
  int rank = 0;
  std::string node = {};
  std::vector<int> cores = {};  ///< that it may use
  int node_cores = 0;           ///< of its node
  bool gpu_usable = false;
  bool gpus_allotted = false;   ///< by the scheduler
  int gpus = 0;                 ///< that it sees and can use
  std::string gpu_reason = {};  ///< why it cannot
  int gpu_pairs = 0;            ///< of the GPUs that it sees
  int gpu_pairs_reaching = 0;   ///< that reach each other's memory
  std::string gpus_apart = {};  ///< "0 and 3", which do not
};

/// Two neighbouring ranks.
struct LinkFacts {
  int first = 0;
  int second = 0;
  bool same_node = false;
  double latency = 0;
  double bandwidth = 0;
  std::string error = {};
};

/// One node's way to another over one of the other's addresses, by TCP.
struct RouteFacts {
  std::string interface = {};  ///< of the node that is reached
  std::string address = {};
  std::string error = {};
};
/// Two nodes; numbers as in the list of node names.
struct NodePairFacts {
  int first = 0;
  int second = 0;
  double latency = 0;    ///< by MPI
  double bandwidth = 0;  ///< by MPI
  std::string error = {};
  std::vector<RouteFacts> routes = {};  ///< from `first` to `second`
  std::vector<RouteFacts> back = {};    ///< from `second` to `first`
};

struct ClockFacts {
  std::string node = {};
  double offset = 0;       ///< against rank 0's node
  double uncertainty = 0;  ///< half the quickest round trip
};

/// One node's view of --data.
struct DataFacts {
  std::string node = {};
  std::int64_t shards = 0;
  std::uint64_t bytes = 0;  ///< that were read
  double seconds = 0;
  std::string error = {};
};

/// --run-dir from rank 0's node.
struct RunDirectoryFacts {
  enum class Locks { work, refused };
  std::string path = {};
  std::string error = {};  ///< it cannot be made or written to
  double write_rate = 0;   ///< bytes a second, with fsync
  double rename_seconds = 0;
  Locks locks = Locks::work;
  std::string lock_error = {};
};
/// And from another node, while rank 0's holds a lock in it.
struct SharedDirectoryFacts {
  std::string node = {};
  bool sees_file = false;
  bool can_write = false;
  bool got_lock = false;  ///< which rank 0's node held: locks do not reach across nodes
  std::string error = {};
};

struct SpaceFacts {
  std::string path = {};
  std::string model = {};
  std::uint64_t checkpoint = 0;  ///< bytes of one
  std::int64_t kept = 0;         ///< checkpoints that will lie there, the one being written too
  std::uint64_t free = 0;        ///< bytes, as the file system says
  std::string refused = {};      ///< why a file of one checkpoint's size could not be reserved
};

struct NcclFacts {
  double bandwidth = 0;  ///< of the all-reduce: 2 (n - 1) / n bytes of each rank's, a second
  std::string error = {};
};

}  // namespace lockstep::doctor
