#include "nccl_links.hpp"

#include "unique_ids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <string>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// Limit for the other ranks to finish too when a communicator ends.
constexpr std::chrono::milliseconds finalize_limit = 10s;

constexpr const char* start_of_nccl = "the start of NCCL";

std::string limit_advice(const NcclCommunicatorOptions& options) {
  if (options.limit_option.empty()) return "";
  return fmt::format("; if the job only starts slowly, raise {}", options.limit_option);
}

}  // namespace

NcclLinks::NcclLinks(NcclApi& api, const Rendezvous& rendezvous,
                     std::span<const std::vector<int>> sets, const NcclCommunicatorOptions& options)
    : api_(api),
      cuda_(api, rendezvous.name(rendezvous.rank())),
      wait_limit_(options.wait_limit),
      exceptions_(std::uncaught_exceptions()),
      advice_(limit_advice(options)),
      stream_(cuda_.make_stream()),
      marks_(cuda_, options.progress) {
  for (const std::vector<int>& ranks : sets) links_.emplace_back(api, rendezvous, ranks, advice_);
}

void NcclLinks::report(Rendezvous& rendezvous, const NcclCommunicatorOptions& options,
                       const Error& error) {
  rendezvous.meet({start_of_nccl, options.start_limit, limit_advice(options).c_str()},
                  {Rendezvous::Arrival::failed, error.what()});
}

void NcclLinks::start(Rendezvous& rendezvous, const NcclCommunicatorOptions& options) {
  try {
    connect(rendezvous, options);
  } catch (...) {
    abort();
    throw;
  }
  started_ = true;
}

void NcclLinks::connect(Rendezvous& rendezvous, const NcclCommunicatorOptions& options) {
  NcclLink& all = links_.front();
  assert(all.size() == rendezvous.size());
  const auto make_id = [&](NcclUniqueId& id) -> std::string {
    const NcclResult result = api_.get_unique_id(&id);
    return result == NcclResult::success ? "" : all.failure(result, "ncclGetUniqueId");
  };
  const Rendezvous::Place place{start_of_nccl, options.start_limit, advice_.c_str()};
  int ranks_per_id = all.size();
  if (all.size() > options.ranks_per_id) {
    // Rank 0 decides, since nodes may have different versions of NCCL.
    if (api_.has_scalable_init()) ranks_per_id = options.ranks_per_id;
    rendezvous.meet(place, {}, std::as_writable_bytes(std::span(&ranks_per_id, 1)));
  }
  const std::vector<int> leaders = id_leaders(all.size(), ranks_per_id);
  Rendezvous::Outcome mine;
  if (leaders.size() > 1 && !api_.has_scalable_init()) {
    mine.text = fmt::format(
        "NCCL on {} is older than 2.23, but on {} it is not (a start of {} ranks differs between "
        "them); use one version on all nodes",
        rendezvous.name(rendezvous.rank()), rendezvous.name(0), all.size());
  }
  const auto ids = exchange_unique_ids(rendezvous, place, mine, leaders, make_id);

  Backoff backoff(options.start_limit);
  Rendezvous::Outcome connected;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    connected = i == 0 ? all.connect(ids, options.max_ctas, backoff)
                       : links_[i].split(all, options.max_ctas, backoff);
    connected.phase = static_cast<int>(i);
    if (connected.arrival != Rendezvous::Arrival::succeeded) break;
  }
  // Fast ranks wait for those that are still connecting, plus a margin for arriving here.
  const auto way = std::clamp<std::chrono::milliseconds>(options.start_limit / 4, 1s, 10s);
  rendezvous.meet({"the end of NCCL's start", backoff.left() + way, advice_.c_str()}, connected);
}

void NcclLinks::settle(NcclLink& link, NcclResult result, const char* call) {
  // Some calls return success before their work is queued.
  if (result == NcclResult::success) result = link.state();
  if (result == NcclResult::success) return;
  Backoff backoff(wait_limit_);
  while (result == NcclResult::in_progress) {
    result = link.state();
    if (result != NcclResult::in_progress) break;
    check();
    if (!backoff.pause()) {
      fail(ExitStatus::internal,
           "{} was not made on {} within {} s ({} does not make it, or was lost); look into the "
           "other ranks' logs and submit the job again",
           call, link.who(), backoff.limit_seconds(), link.another());
    }
  }
  if (result != NcclResult::success) throw Error(ExitStatus::internal, link.failure(result, call));
}

void NcclLinks::check() {
  for (NcclLink& link : links_) {
    if (link.get() == nullptr) continue;
    const NcclResult result = link.state();
    if (result == NcclResult::success || result == NcclResult::in_progress) continue;
    throw Error(ExitStatus::internal, link.failure(result, "a collective of NCCL"));
  }
}

void NcclLinks::end(NcclLink& link) noexcept {
  if (link.get() == nullptr) return;
  // If an exception ended this rank's work, the other ranks may not be here.
  if (std::uncaught_exceptions() > exceptions_ ||
      !link.end(std::min(wait_limit_, finalize_limit))) {
    abort();
  }
}

void NcclLinks::abort() noexcept {
  aborted_ = true;
  // An abort frees memory, which waits for the device. If aborted one by one, the first would wait
  // for a hanging collective of another communicator. A group tells all of them to stop before it
  // frees any. After group_end() all are freed, even if they are nonblocking.
  static_cast<void>(api_.group_start());
  for (NcclLink& link : links_) link.abort();
  static_cast<void>(api_.group_end());
}

}  // namespace lockstep
