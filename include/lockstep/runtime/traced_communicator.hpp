#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Traces waits for other ranks, and collectives in flight from their start until this rank finds
/// them done.
class TracedCommunicator final : public ForwardingCommunicator {
 public:
  static constexpr const char* under_way_row = "collectives under way";
  static constexpr const char* waiting_row = "waiting for ranks";

  /// Both references must outlive it.
  TracedCommunicator(Communicator& inner, TraceRecorder& recorder)
      : ForwardingCommunicator(inner),
        recorder_(recorder),
        under_way_(recorder.row(under_way_row)),
        waiting_(recorder.row(waiting_row)) {}

  bool test(Request& request) override;
  void wait(Request& request) override;
  void synchronize() override;
  void synchronize_until(FunctionRef<bool()> reached) override;

 private:
  struct UnderWay {
    CollectiveKind kind = CollectiveKind::none;
    TraceRow::Handle handle = 0;
  };

  void begin(const CollectiveCall& call) override;
  void end() noexcept override { waiting_.close(blocking_); }
  void before_start(const CollectiveCall& call) override;
  void after_start(CollectiveKind kind, const Request& request) override;
  [[nodiscard]] TraceArguments arguments_of(const CollectiveCall& call) const noexcept;

  TraceRecorder& recorder_;
  TraceRow& under_way_;
  TraceRow& waiting_;
  TraceRow::Handle blocking_ = 0;
  TraceRow::Handle starting_ = 0;
  /// By request slot; preallocated, so that a step allocates nothing.
  std::vector<UnderWay> requests_ = std::vector<UnderWay>(64);
};

}  // namespace lockstep
