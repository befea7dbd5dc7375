#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/message_communicator.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/config/option_types.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// How ranks reduce arenas in host memory.
struct HostLinkOptions {
  CommChoice comm = CommChoice::automatic;
  AllReduce all_reduce = AllReduce::automatic;
  CommProgress progress = CommProgress::automatic;
  std::vector<int> cores = {};  ///< of the thread that progresses messages; empty: any
};

/// Error(usage) if a thread was asked for and MPI does not allow it.
[[nodiscard]] MessageCommunicatorOptions message_options(const HostLinkOptions& options);

/// Communicates arenas in host memory between the ranks of a communicator: through shared memory if
/// available, else by messages on a schedule of our own or by MPI's collectives.
class HostLink final {
 public:
  /// Collective over `mpi`, which must outlive it. Error(usage) on all its ranks if shared memory
  /// is asked for and not available.
  HostLink(Communicator& mpi, const HostLinkOptions& options);

  [[nodiscard]] Communicator& get() noexcept;
  [[nodiscard]] bool is_shared() const noexcept { return shared_ != nullptr; }
  /// How sums work if `--comm` left it open: in memory of `whose`, or between hosts and why. Else
  /// empty.
  [[nodiscard]] std::string way(std::string_view whose) const;
  /// As Compute::all_reduce().
  [[nodiscard]] std::string all_reduce() const;

 private:
  Communicator& mpi_;
  std::string not_shared_;  ///< why ranks cannot share memory
  std::unique_ptr<Communicator> shared_;
  std::unique_ptr<Communicator> messages_;
  std::string algorithm_;  ///< of messages_
};

struct HostCommunicator {
  std::unique_ptr<Communicator> communicator;
  std::string algorithm;  ///< as Compute::all_reduce()
};
/// A communicator over host memory and all ranks of `host` that sums by messages or MPI. Collective
/// over them.
[[nodiscard]] HostCommunicator make_host_communicator(Communicator& host,
                                                      const HostLinkOptions& options);

/// Group communicators over host memory, for --shard hybrid.
class HostGroups final {
 public:
  /// Collective over `host`, all ranks of the job. `group_size` 0: no groups.
  HostGroups(Communicator& host, int group_size, const HostLinkOptions& options);
  [[nodiscard]] Compute::Groups get() noexcept {
    return {.group = group_link_ ? &group_link_->get() : nullptr,
            .replicas = replicas_link_ ? &replicas_link_->get() : nullptr};
  }
  /// How sums are computed within this rank's group and between groups; empty if there is only one
  /// group or nothing was left open.
  [[nodiscard]] std::string way() const;

 private:
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Communicator> replicas_;
  std::optional<HostLink> group_link_;
  std::optional<HostLink> replicas_link_;
};

}  // namespace lockstep
