#pragma once

#include "lockstep/engine/program.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

/// Trace row with an event for each step (layer operation) of the network, forward and backward.
class StepTrace final : public StepTimer {
 public:
  static constexpr const char* row_name = "network";
  /// `recorder` outlives this object, which outlives the recorder's events.
  explicit StepTrace(TraceRecorder& recorder) : recorder_(recorder), row_(recorder.row(row_name)) {}

  [[nodiscard]] bool wants() const noexcept override { return recorder_.recording(); }
  void took(std::string_view step, std::int64_t begin, std::int64_t end) override {
    row_.add({.name = name_of(step),
              .begin = begin,
              .end = end,
              .arguments = {{{"step", recorder_.step()}}}});
  }

 private:
  /// Keeps a copy of the name: events hold only pointers.
  [[nodiscard]] const char* name_of(std::string_view step) {
    const auto found = names_.find(step);
    return (found != names_.end() ? found : names_.emplace(step).first)->c_str();
  }

  TraceRecorder& recorder_;
  TraceRow& row_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace lockstep
