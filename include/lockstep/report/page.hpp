#pragma once

#include "lockstep/report/run_record.hpp"
#include "lockstep/report/scaling_study.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::report {

/// Whether this build has the library that plots.
[[nodiscard]] bool has_plots() noexcept;

/// Bins of each curve: fewer for more runs, which keeps a page of 20 runs below 2 MB.
[[nodiscard]] std::size_t bins_for(std::size_t runs) noexcept;

/// The whole page of one run, or of several to compare; needs has_plots().
[[nodiscard]] std::string page_of(std::span<const RunRecord> runs);
/// The whole page of a scaling study.
[[nodiscard]] std::string page_of(const ScalingStudy& study);

/// Whether the file is a page of page_of(), by its first lines.
[[nodiscard]] bool is_page(const std::string& path);

}  // namespace lockstep::report
