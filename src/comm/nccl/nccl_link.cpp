#include "nccl_link.hpp"

#include "lockstep/core/name_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {

NcclLink::NcclLink(NcclApi& api, const Rendezvous& rendezvous, std::vector<int> ranks,
                   std::string limit_advice)
    : api_(api),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::ranges::find(ranks_, rendezvous.rank()) - ranks_.begin())),
      who_(rendezvous.name(rendezvous.rank())),
      another_("another rank"),
      advice_(std::move(limit_advice)) {
  if (size() == rendezvous.size()) return;
  std::vector<std::string> names;
  for (const int rank : ranks_) names.push_back(rendezvous.name(rank));
  another_ = "another of " + listed(names);
}

Rendezvous::Outcome NcclLink::connect(std::span<const NcclUniqueId> ids, int max_ctas,
                                      Backoff& backoff) {
  const NcclConfig config{.blocking = false, .max_ctas = max_ctas};
  if (ids.size() > 1) {
    const NcclResult result = api_.comm_init_rank_scalable(&comm_, size(), rank_, ids, config);
    return outcome(complete(result, backoff), "ncclCommInitRankScalable", backoff);
  }
  const NcclResult result = api_.comm_init_rank_config(&comm_, size(), ids.front(), rank_, config);
  return outcome(complete(result, backoff), "ncclCommInitRankConfig", backoff);
}

Rendezvous::Outcome NcclLink::split(NcclLink& all, int max_ctas, Backoff& backoff) {
  NcclResult result = api_.comm_split(all.comm_, ranks_.front(), rank_, &comm_,
                                      {.blocking = false, .max_ctas = max_ctas});
  result = all.complete(result, backoff);
  if (result == NcclResult::success) result = complete(result, backoff);
  return outcome(result, "ncclCommSplit", backoff);
}

NcclResult NcclLink::complete(NcclResult result, Backoff& backoff, FunctionRef<bool()> is_done) {
  while (result == NcclResult::success || result == NcclResult::in_progress) {
    result = state();
    if (result != NcclResult::success && result != NcclResult::in_progress) break;
    if (is_done() && result == NcclResult::success) break;
    if (!backoff.pause()) return NcclResult::in_progress;
  }
  return result;
}

Rendezvous::Outcome NcclLink::outcome(NcclResult result, const char* call,
                                      const Backoff& backoff) const {
  if (result == NcclResult::success) return {};
  if (result != NcclResult::in_progress) {
    return {Rendezvous::Arrival::failed, failure(result, call)};
  }
  return {Rendezvous::Arrival::waited,
          fmt::format("NCCL did not connect {} within {} s (it does not reach {}); set "
                      "NCCL_DEBUG=INFO to see which network it tries, and NCCL_SOCKET_IFNAME to "
                      "choose one{}",
                      who_, backoff.limit_seconds(), another_, advice_)};
}

NcclResult NcclLink::state() {
  NcclResult found = NcclResult::success;
  const NcclResult result = api_.comm_get_async_error(comm_, &found);
  return result == NcclResult::success ? found : result;
}

std::string NcclLink::failure(NcclResult result, const char* call) const {
  const std::string words = api_.last_error(comm_);
  return fmt::format("{} failed on {} ({}{}{}) {}", call, who_, api_.error_string(result),
                     words.empty() ? "" : ": ", words,
                     result == NcclResult::remote_error
                         ? another_ + " was lost: look into its log and submit the job again"
                         : "set NCCL_DEBUG=INFO and submit the job again to see more");
}

void NcclLink::keep(const RegisteredMemory& memory) {
  kept_.push_back({.memory = memory});
}
NcclResult NcclLink::register_window() {
  Kept& last = kept_.back();
  return api_.comm_window_register(comm_, last.memory.bytes.data(), last.memory.bytes.size(),
                                   &last.window);
}
NcclResult NcclLink::drop_window() {
  NcclWindow window = std::exchange(kept_.back().window, nullptr);
  return window == nullptr ? NcclResult::success : api_.comm_window_deregister(comm_, window);
}
NcclResult NcclLink::register_memory() {
  Kept& last = kept_.back();
  return api_.comm_register(comm_, last.memory.bytes.data(), last.memory.bytes.size(),
                            &last.handle);
}

bool NcclLink::end(std::chrono::milliseconds limit) noexcept {
  Backoff backoff(limit);
  const auto made = [&](NcclResult result) {
    return complete(result, backoff) == NcclResult::success;
  };
  for (Kept& each : kept_) {
    if (each.window != nullptr && !made(api_.comm_window_deregister(comm_, each.window)))
      return false;
    if (each.handle != nullptr && !made(api_.comm_deregister(comm_, each.handle))) return false;
  }
  if (!made(api_.comm_finalize(comm_))) return false;
  api_.comm_destroy(comm_);
  comm_ = nullptr;
  return true;
}

void NcclLink::abort() noexcept {
  if (comm_ == nullptr) return;
  api_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace lockstep
