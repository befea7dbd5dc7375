#pragma once

#include "lockstep/report/run_record.hpp"

#include <nlohmann/json_fwd.hpp>

#include <span>

namespace lockstep::report {

/// NaN becomes null; whole numbers are shorter without a fraction.
[[nodiscard]] nlohmann::ordered_json json_of(double value);

/// The data of the page, which its scripts read.
[[nodiscard]] nlohmann::ordered_json page_data(std::span<const RunRecord> runs);

}  // namespace lockstep::report
