#include "host_link.hpp"

#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_all_reduce.hpp"
#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <utility>

namespace lockstep {

namespace {

bool uses_thread(CommProgress progress) {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (progress == CommProgress::thread && level < MPI_THREAD_SERIALIZED) {
    fail(ExitStatus::usage,
         "--comm-progress thread needs MPI_THREAD_SERIALIZED (this MPI gives thread level {}, not "
         "{}); use --comm-progress calls, or an MPI built with thread support",
         level, int{MPI_THREAD_SERIALIZED});
  }
  return progress != CommProgress::calls && level >= MPI_THREAD_SERIALIZED;
}

}  // namespace

MessageCommunicatorOptions message_options(const HostLinkOptions& options) {
  MessageCommunicatorOptions messages;
  messages.two_levels = options.comm != CommChoice::mpi;
  if (options.all_reduce == AllReduce::ring) messages.schedule = BlockSchedule::ring;
  if (options.all_reduce == AllReduce::halving) messages.schedule = BlockSchedule::halving;
  if (uses_thread(options.progress)) {
    messages.prepare_thread = [cores = options.cores] { become_helper_thread(cores); };
  }
  return messages;
}

HostLink::HostLink(Communicator& mpi, const HostLinkOptions& options) : mpi_(mpi) {
  if (mpi.size() == 1) return;
  if (options.comm != CommChoice::mpi) {
    auto [shared, reason] = make_shared_memory_communicator(mpi);
    if (!shared && options.comm == CommChoice::shared) {
      fail(ExitStatus::usage,
           "--comm shared needs memory that all ranks share ({}); run them on one host with enough "
           "room in /dev/shm, or drop it",
           reason);
    }
    if (!shared) not_shared_ = reason;
    shared_ = std::move(shared);
  }
  if (shared_ || options.all_reduce == AllReduce::mpi) return;
  MessageCommunicatorResult made = make_message_communicator(mpi, message_options(options));
  messages_ = std::move(made.communicator);
  algorithm_ = std::move(made.algorithm);
  if (!made.one_level_reason.empty()) not_shared_ += "; " + made.one_level_reason;
}

Communicator& HostLink::get() noexcept {
  return shared_ ? *shared_ : messages_ ? *messages_ : mpi_;
}

std::string HostLink::way(std::string_view whose) const {
  if (shared_) return fmt::format("in memory that {} share", whose);
  if (not_shared_.empty()) return "";
  return fmt::format("by {} ({})", messages_ ? algorithm_ : "MPI", not_shared_);
}

std::string HostLink::all_reduce() const {
  if (mpi_.size() == 1) return "";
  return shared_ ? "shared memory" : messages_ ? algorithm_ : mpi_all_reduce();
}

HostCommunicator make_host_communicator(Communicator& host, const HostLinkOptions& options) {
  std::unique_ptr<Communicator> mpi = host.split(0, host.rank());
  if (mpi->size() == 1) return {.communicator = std::move(mpi), .algorithm = ""};
  if (options.all_reduce == AllReduce::mpi) {
    set_mpi_all_reduce();
    return {.communicator = std::move(mpi), .algorithm = mpi_all_reduce()};
  }
  MessageCommunicatorResult made = make_message_communicator(
      std::shared_ptr<Communicator>(std::move(mpi)), message_options(options));
  return {.communicator = std::move(made.communicator), .algorithm = std::move(made.algorithm)};
}

HostGroups::HostGroups(Communicator& host, int group_size, const HostLinkOptions& options) {
  if (group_size == 0) return;
  const Mesh mesh = data_mesh(host.size(), group_size);
  const auto make = [&](std::unique_ptr<Communicator>& ranks, std::optional<HostLink>& link,
                        std::string_view axis) {
    ranks = mesh.split(host, {axis});
    collectively(host, [&] { link.emplace(*ranks, options); });
  };
  make(group_, group_link_, shard_axis);
  if (group_size < host.size()) make(replicas_, replicas_link_, replica_axis);
}

std::string HostGroups::way() const {
  if (!replicas_link_) return "";
  const std::string within = group_link_->way("its ranks");
  const std::string between = replicas_link_->way("their ranks");
  return within.empty() ? between
                        : fmt::format("within a group {}, between groups {}", within, between);
}

}  // namespace lockstep
