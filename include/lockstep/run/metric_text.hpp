#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/core/metrics.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// "top-1 78.25 %, top-5 93.10 %, confidence 80.41 %": every metric of the table
[[nodiscard]] std::string percent_text(const MetricValues& means);
/// "top-1 0.7825, top-5 0.9310, confidence 0.8041"
[[nodiscard]] std::string fraction_text(const MetricValues& means);
/// Adds the first `count` of the table to an object, by their names after `prefix`.
void add_metrics(Json& object, const MetricValues& means, std::size_t count = metric_table.size(),
                 std::string_view prefix = {});

}  // namespace lockstep
