#pragma once

#include "lockstep/runtime/gpu_place.hpp"
#include "lockstep/runtime/launch.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What the doctor measures. Judging these facts (judge.hpp) needs no cluster. Times are in
/// seconds, rates in bytes per second; an empty `error` means success.
namespace lockstep::doctor {

/// Facts that a process measures about itself.
struct RankFacts {
  int rank = 0;
  std::string node = {};
  std::vector<int> cores = {};  ///< cores that it may use
  int node_cores = 0;           ///< cores of its node
  bool gpu_usable = false;
  bool gpus_allotted = false;             ///< by the scheduler
  int gpus = 0;                           ///< GPUs that it can see and use
  std::string gpu_reason = {};            ///< why it can use none
  int gpu_pairs = 0;                      ///< pairs of visible GPUs
  int gpu_pairs_reaching = 0;             ///< pairs that can access each other's memory
  std::string gpus_apart = {};            ///< a pair that cannot, as "0 and 3"
  std::vector<GpuPlace> gpu_places = {};  ///< of the GPUs that it can see, in their order
  std::string interface_error = {};       ///< why its host has no --watchdog-interface
};

/// The link between two neighbouring ranks.
struct LinkFacts {
  int first = 0;
  int second = 0;
  bool same_node = false;
  double latency = 0;
  double bandwidth = 0;
  std::string error = {};
};

/// One node's TCP connection to one address of another node.
struct RouteFacts {
  std::string interface = {};  ///< of the target node
  std::string address = {};
  std::string error = {};
};
/// TCP segments that a node sent, and how many it retransmitted.
struct SegmentFacts {
  std::uint64_t sent = 0;
  std::uint64_t retransmitted = 0;
};
/// One measurement between two nodes.
struct LinkMeasurement {
  double latency = 0;          ///< by MPI
  double bandwidth = 0;        ///< by MPI
  SegmentFacts segments = {};  ///< of both nodes, meanwhile
};
/// Two nodes, as indices into the list of node names, and the best that was measured.
struct NodePairFacts {
  int first = 0;
  int second = 0;
  double latency = 0;
  double bandwidth = 0;
  SegmentFacts segments = {};
  std::vector<LinkMeasurement> measured = {};  ///< if several times
  std::string error = {};
  std::vector<RouteFacts> routes = {};  ///< from `first` to `second`
  std::vector<RouteFacts> back = {};    ///< from `second` to `first`
};

struct ClockFacts {
  std::string node = {};
  double offset = 0;       ///< relative to rank 0's node
  double uncertainty = 0;  ///< half the fastest round trip
};

struct ReadFacts {
  std::uint64_t bytes = 0;
  double seconds = 0;
};
/// One node's view of --data.
struct DataFacts {
  std::string node = {};
  std::int64_t shards = 0;
  std::vector<ReadFacts> reads = {};  ///< at least one, unless there is an error
  std::string error = {};
};

/// --run-dir as seen from rank 0's node.
struct RunDirectoryFacts {
  std::string path = {};
  std::string error = {};                   ///< why it cannot be created or written
  double write_rate = 0;                    ///< including fsync
  std::vector<double> rename_seconds = {};  ///< of each; at least one, unless there is an error
  std::string lock_error = {};              ///< why locks are refused; empty: they work
  std::string no_links = {};                ///< why it has no symbolic links; empty: it has
};
/// --run-dir as seen from another node, while rank 0's node holds a lock in it.
struct SharedDirectoryFacts {
  std::string node = {};
  bool sees_file = false;
  bool can_write = false;
  bool got_lock = false;  ///< got the lock that rank 0's node holds: locks fail across nodes
  std::string error = {};
};

struct SpaceFacts {
  std::string path = {};
  std::string model = {};
  std::uint64_t checkpoint = 0;  ///< bytes of one checkpoint
  std::int64_t kept = 0;         ///< checkpoints kept at once, including the one being written
  std::uint64_t free = 0;        ///< free bytes reported by the file system
  std::string refused = {};      ///< why a file of one checkpoint's size could not be reserved
};

struct NcclFacts {
  double bandwidth = 0;  ///< bus bandwidth of the all-reduce: 2 (n - 1) / n times buffer / time
  std::string error = {};
};

}  // namespace lockstep::doctor
