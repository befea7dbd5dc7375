#include "host_link.hpp"

#include "lockstep/comm/mpi_all_reduce.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/rank_groups.hpp"
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

MessageCommunicatorOptions message_options(std::optional<int> color,
                                           const HostLinkOptions& options) {
  MessageCommunicatorOptions messages;
  messages.color = color;
  messages.two_levels = options.comm != CommChoice::mpi;
  if (options.all_reduce == AllReduce::ring) messages.schedule = BlockSchedule::ring;
  if (options.all_reduce == AllReduce::halving) messages.schedule = BlockSchedule::halving;
  if (uses_thread(options.progress)) {
    messages.prepare_thread = [cores = options.cores] { become_helper_thread(cores); };
  }
  return messages;
}

HostLink::HostLink(Communicator& mpi, const HostLinkOptions& options)
    : mpi_(mpi), options_(options) {
  if (options.comm == CommChoice::mpi || mpi.size() == 1) return;
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

bool HostLink::wants_messages() const noexcept {
  return !shared_ && mpi_.size() > 1 && options_.all_reduce != AllReduce::mpi;
}

void HostLink::use_messages(std::optional<int> color) {
  MessageCommunicatorResult made =
      make_message_communicator(mpi_, message_options(color, options_));
  if (!wants_messages()) return;  // the others do
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

HostCommunicator make_host_communicator(int color, const HostLinkOptions& options) {
  std::unique_ptr<Communicator> mpi = make_mpi_communicator({.color = color});
  if (mpi->size() == 1) return {.communicator = std::move(mpi), .algorithm = ""};
  if (options.all_reduce == AllReduce::mpi) {
    set_mpi_all_reduce();
    return {.communicator = std::move(mpi), .algorithm = mpi_all_reduce()};
  }
  MessageCommunicatorResult made = make_message_communicator(
      std::shared_ptr<Communicator>(std::move(mpi)), message_options(color, options));
  return {.communicator = std::move(made.communicator), .algorithm = std::move(made.algorithm)};
}

HostGroups::HostGroups(Communicator& host, int group_size, const HostLinkOptions& options) {
  if (group_size == 0) return;
  const RankGroups groups = rank_groups(host.rank(), host.size(), group_size);
  // Memory may be shared in some groups only, but all ranks of the job make messages together.
  const auto make = [&](std::unique_ptr<Communicator>& ranks, std::optional<HostLink>& link,
                        int color) {
    ranks = make_mpi_communicator({.color = color});
    collectively(host, [&] { link.emplace(*ranks, options); });
    const std::int32_t wants = link->wants_messages() ? 1 : 0;
    if (host.all_reduce_value(wants, ReduceOp::max) != 0) link->use_messages(color);
  };
  make(group_, group_link_, groups.group.front());
  if (group_size < host.size()) make(replicas_, replicas_link_, groups.replicas.front());
}

std::string HostGroups::way() const {
  if (!replicas_link_) return "";
  const std::string within = group_link_->way("its ranks");
  const std::string between = replicas_link_->way("their ranks");
  return within.empty() ? between
                        : fmt::format("within a group {}, between groups {}", within, between);
}

}  // namespace lockstep
