#include "nccl_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// What the destructor gives the other ranks to finish too.
constexpr std::chrono::milliseconds finalize_limit = 10s;

constexpr const char* start_of_nccl = "the start of NCCL";

}  // namespace

NcclLink::NcclLink(NcclApi& api, RollCall& roll_call, const NcclCommunicatorOptions& options)
    : api_(api),
      who_(roll_call.name(roll_call.rank())),
      wait_limit_(options.wait_limit),
      exceptions_(std::uncaught_exceptions()) {
  try {
    start(roll_call, options);
  } catch (...) {
    abort();
    throw;
  }
}

void NcclLink::report(RollCall& roll_call, const NcclCommunicatorOptions& options,
                      const Error& error) {
  roll_call.meet({start_of_nccl, options.start_limit}, {RollCall::Arrival::failed, error.what()});
}

NcclLink::~NcclLink() {
  if (is_aborted()) return;
  for (const Registered& each : registered_) {
    if (each.how == DeviceCommunicator::Registration::symmetric) {
      api_.comm_window_deregister(comm_, each.handle);
    } else {
      api_.comm_deregister(comm_, each.handle);
    }
  }
  // The other ranks may not be here where an exception ended this one's work.
  if (std::uncaught_exceptions() > exceptions_ || !is_finalized()) {
    abort();
  } else {
    api_.comm_destroy(comm_);
  }
}

void NcclLink::start(RollCall& roll_call, const NcclCommunicatorOptions& options) {
  NcclUniqueId id{};
  RollCall::Outcome made;
  if (roll_call.rank() == 0) {
    if (const NcclResult result = api_.get_unique_id(&id); result != NcclResult::success)
      made = {RollCall::Arrival::failed, failure(result, "ncclGetUniqueId")};
  }
  roll_call.meet({start_of_nccl, options.start_limit}, made, std::as_writable_bytes(std::span(id)));

  Patience patience(options.start_limit);
  const RollCall::Outcome connected = connect(roll_call, id, options.max_ctas, patience);
  // Those that were quick wait for those that are still at it, and for the way there.
  const auto way = std::clamp<std::chrono::milliseconds>(options.start_limit / 4, 1s, 10s);
  roll_call.meet({"the end of NCCL's start", patience.left() + way}, connected);
}

RollCall::Outcome NcclLink::connect(RollCall& roll_call, const NcclUniqueId& id, int max_ctas,
                                    Patience& patience) {
  constexpr const char* call = "ncclCommInitRankConfig";
  NcclResult result = api_.comm_init_rank_config(&comm_, roll_call.size(), id, roll_call.rank(),
                                                 {.blocking = false, .max_ctas = max_ctas});
  while (result == NcclResult::in_progress || (result == NcclResult::success && comm_ != nullptr)) {
    result = state();
    if (result == NcclResult::success) return {};
    if (result != NcclResult::in_progress) break;
    if (!patience.pause()) {
      return {
          RollCall::Arrival::waited,
          fmt::format("NCCL did not connect {} within {} s (it does not reach another rank) set "
                      "NCCL_DEBUG=INFO to see which network it tries, and NCCL_SOCKET_IFNAME to "
                      "choose one",
                      who_, patience.limit_seconds())};
    }
  }
  return {RollCall::Arrival::failed, failure(result, call)};
}

void NcclLink::settle(NcclResult result, const char* call) {
  if (result == NcclResult::success) return;
  Patience patience(wait_limit_);
  while (result == NcclResult::in_progress) {
    result = state();
    if (result == NcclResult::in_progress && !patience.pause()) {
      fail(ExitStatus::internal,
           "{} was not made on {} within {} s (another rank does not make it, or was lost) look "
           "into the other ranks' logs and submit the job again",
           call, who_, patience.limit_seconds());
    }
  }
  if (result != NcclResult::success) throw Error(ExitStatus::internal, failure(result, call));
}

void NcclLink::check() {
  const NcclResult result = state();
  if (result == NcclResult::success || result == NcclResult::in_progress) return;
  throw Error(ExitStatus::internal, failure(result, "a collective of NCCL"));
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
                         ? "another rank was lost: look into its log and submit the job again"
                         : "set NCCL_DEBUG=INFO and submit the job again to see more");
}

void NcclLink::register_buffer(void* memory, std::size_t bytes,
                               DeviceCommunicator::Registration how) {
  Registered& added = registered_.emplace_back(Registered{how, nullptr});
  if (how == DeviceCommunicator::Registration::symmetric) {
    settle(api_.comm_window_register(comm_, memory, bytes, &added.handle),
           "ncclCommWindowRegister");
  } else {
    settle(api_.comm_register(comm_, memory, bytes, &added.handle), "ncclCommRegister");
  }
}

bool NcclLink::is_finalized() noexcept {
  NcclResult result = api_.comm_finalize(comm_);
  for (Patience patience(std::min(wait_limit_, finalize_limit));
       result == NcclResult::in_progress && patience.pause();) {
    result = state();
  }
  return result == NcclResult::success;
}

void NcclLink::abort() noexcept {
  if (is_aborted()) return;
  api_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace lockstep
