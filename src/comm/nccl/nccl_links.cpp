#include "nccl_links.hpp"

#include "lockstep/core/crc32c.hpp"
#include "nccl_group.hpp"
#include "unique_ids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <string>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// Limit for the other ranks to finish too when a communicator ends.
constexpr std::chrono::milliseconds finalize_limit = 10s;

constexpr const char* start_of_nccl = "the start of NCCL";

/// Texts of which only the end, that does not fit, differs stay different.
std::string shortened(const std::string& text, std::size_t limit) {
  if (text.size() <= limit) return text;
  const std::string sum = fmt::format("..., and more of checksum {:08x}", crc32c(text));
  return text.substr(0, limit - sum.size()) + sum;
}

/// The entries of a list, separated by commas, from the first on that differs from another's.
std::string rest_of(const std::string& list, const std::string& other) {
  const auto [end, rest] = std::ranges::mismatch(list, other);
  if (end == list.end() && std::string(rest, other.end()).starts_with(", ")) return "nothing more";
  const std::size_t comma = list.rfind(", ", static_cast<std::size_t>(end - list.begin()));
  return comma == std::string::npos ? list : list.substr(comma + 2);
}

/// This rank's outcome after all ranks have compared their settings with rank 0's. Collective.
Rendezvous::Outcome compare_settings(Rendezvous& rendezvous, const Rendezvous::Place& place,
                                     const std::string& mine) {
  std::array<char, Rendezvous::largest_payload> text{};
  const std::string own = shortened(mine, text.size() - 1);
  own.copy(text.data(), own.size());
  rendezvous.meet(place, {}, std::as_writable_bytes(std::span(text)));
  const std::string other = text.data();
  if (own == other) return {};
  return {
      .arrival = Rendezvous::Arrival::failed,
      .text = fmt::format(
          "{} has {}, but {} has {} (NCCL hangs or fails if ranks differ); use the same version "
          "and variables on all nodes",
          rendezvous.name(rendezvous.rank()), rest_of(own, other), rendezvous.name(0),
          rest_of(other, own)),
      .status = ExitStatus::usage};
}

Rendezvous::Outcome failure_of(const Error& error) {
  return {.arrival = Rendezvous::Arrival::failed, .text = error.what(), .status = error.status()};
}

std::string limit_advice(const NcclCommunicatorOptions& options) {
  if (options.limit_option.empty()) return "";
  return fmt::format("; if the job only starts slowly, raise {}", options.limit_option);
}

}  // namespace

NcclLinks::NcclLinks(NcclApi& api, const Rendezvous& rendezvous,
                     std::span<const std::vector<int>> sets, const NcclCommunicatorOptions& options)
    : api_(api),
      rendezvous_(rendezvous),
      cuda_(api, rendezvous.name(rendezvous.rank())),
      options_(options),
      exceptions_(std::uncaught_exceptions()),
      advice_(limit_advice(options)),
      stream_(cuda_.make_stream()),
      marks_(cuda_, options.progress) {
  for (const std::vector<int>& ranks : sets) links_.emplace_back(api, rendezvous, ranks, advice_);
  cuda_.check(api.device_allocate(&token_, sets.front().size()), "cudaMalloc");
}

NcclLinks::~NcclLinks() {
  // Freeing device memory waits for the device, which may hang.
  if (token_ != nullptr && !aborted_) api_.device_release(token_);
}

void NcclLinks::report(Rendezvous& rendezvous, const NcclCommunicatorOptions& options,
                       const Error& error) {
  rendezvous.meet({start_of_nccl, options.start_limit, limit_advice(options).c_str()},
                  failure_of(error));
}

void NcclLinks::start(Rendezvous& rendezvous) {
  NcclLink& all = links_.front();
  assert(all.size() == rendezvous.size());
  const auto make_id = [&](NcclUniqueId& id) -> std::string {
    const NcclResult result = api_.get_unique_id(&id);
    return result == NcclResult::success ? "" : all.failure(result, "ncclGetUniqueId");
  };
  const Rendezvous::Place place{start_of_nccl, options_.start_limit, advice_.c_str()};
  const Rendezvous::Outcome compared = compare_settings(rendezvous, place, options_.settings.text);
  const std::vector<int> leaders =
      id_leaders(all.size(), api_.has_scalable_init() ? options_.ranks_per_id : all.size());
  const auto ids = exchange_unique_ids(rendezvous, place, compared, leaders, make_id);

  Backoff backoff(options_.start_limit);
  Rendezvous::Outcome connected;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    try {
      NcclLink& link = links_[i];
      connected = run_first(link,
                            i == 0 ? link.connect(ids, options_.max_ctas, backoff)
                                   : link.split(all, options_.max_ctas, backoff),
                            backoff);
    } catch (const Error& error) {
      connected = failure_of(error);
    }
    connected.phase = static_cast<int>(i);
    if (connected.arrival != Rendezvous::Arrival::succeeded) break;
  }
  // Fast ranks wait for those that are still connecting, plus a margin for arriving here.
  const auto way = std::clamp<std::chrono::milliseconds>(options_.start_limit / 4, 1s, 10s);
  rendezvous.meet({"the end of NCCL's start", backoff.left() + way, advice_.c_str()}, connected);
  started_ = true;
}

NcclLink& NcclLinks::split(NcclLink& parent, std::vector<int> part) {
  NcclLink& link = links_.emplace_back(api_, rendezvous_, std::move(part), advice_);
  Backoff backoff(options_.start_limit);
  const auto outcome = run_first(link, link.split(parent, options_.max_ctas, backoff), backoff);
  if (outcome.arrival != Rendezvous::Arrival::succeeded) {
    throw Error(ExitStatus::internal, outcome.text);
  }
  return link;
}

Rendezvous::Outcome NcclLinks::run_first(NcclLink& link, Rendezvous::Outcome outcome,
                                         Backoff& backoff) {
  const auto queued = [&](NcclResult result, const char* call) {
    const auto is_done = [this] { return cuda_.is_idle(stream()); };
    return link.outcome(link.complete(result, backoff, is_done), call, backoff);
  };
  // NCCL connects an algorithm's ranks in the first collective that uses it, which would be in the
  // first step: here trees, where it has them, and rings. The bytes themselves take a ring of 4096
  // ranks tens of milliseconds, at 10 us a hop.
  if (outcome.arrival == Rendezvous::Arrival::succeeded) {
    outcome = queued(
        api_.all_reduce(token_, token_, 1, ElementType::u8, ReduceOp::max, link.get(), stream()),
        "ncclAllReduce");
  }
  if (outcome.arrival == Rendezvous::Arrival::succeeded) {
    outcome = queued(api_.all_gather(static_cast<std::byte*>(token_) + link.rank(), token_, 1,
                                     ElementType::u8, link.get(), stream()),
                     "ncclAllGather");
  }
  return outcome;
}

void NcclLinks::flush() {
  if (messages_.empty()) return;
  for (const Message& message : messages_) cuda_.order_after(stream(), message.events->ready);
  NcclGroup group(api_);
  for (const auto& [link, sends, data, count, type, peer, events] : messages_) {
    group.add(sends ? api_.send(data, count, type, peer, link->get(), stream())
                    : api_.recv(data, count, type, peer, link->get(), stream()));
  }
  const NcclResult result = group.end();
  for (const Message& message : messages_) {
    settle(*message.link, result, "a group of ncclSend and ncclRecv");
  }
  for (const Message& message : messages_) cuda_.record(message.events->finished, stream());
  messages_.clear();
}

void NcclLinks::settle(NcclLink& link, NcclResult result, const char* call) {
  // Some calls return success before their work is queued.
  if (result == NcclResult::success) result = link.state();
  if (result == NcclResult::success) return;
  Backoff backoff(options_.wait_limit);
  result = link.complete(result, backoff, [this] {
    check();
    return true;
  });
  if (result == NcclResult::success) return;
  if (result != NcclResult::in_progress) {
    throw Error(ExitStatus::internal, link.failure(result, call));
  }
  fail(ExitStatus::internal,
       "{} was not made on {} within {} s ({} does not make it, or was lost); look into the other "
       "ranks' logs and submit the job again",
       call, link.who(), backoff.limit_seconds(), link.another());
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
  std::erase_if(messages_, [&link](const Message& message) { return message.link == &link; });
  if (link.get() == nullptr) return;
  // If an exception ended this rank's work, the other ranks may not be here.
  if (std::uncaught_exceptions() > exceptions_ ||
      !link.end(std::min(options_.wait_limit, finalize_limit))) {
    abort();
  }
}

void NcclLinks::abort() noexcept {
  aborted_ = true;
  messages_.clear();
  // An abort frees memory, which waits for the device. If aborted one by one, the first would wait
  // for a hanging collective of another communicator. A group tells all of them to stop before it
  // frees any. After group_end() all are freed, even if they are nonblocking.
  static_cast<void>(api_.group_start());
  for (NcclLink& link : links_) link.abort();
  static_cast<void>(api_.group_end());
}

}  // namespace lockstep
