#pragma once

#include "lockstep/data/loader.hpp"
#include "lockstep/data/sample_order.hpp"

#include <cstdint>

namespace lockstep {

/// Error(internal) if a plan's request does not fit the loader or a data set of `samples`.
void check_request(const BatchRequest& request, std::int64_t samples, const LoaderOptions& options);

/// The positions of the batch's step; the batch alone if the request does not tell.
[[nodiscard]] Slice step_of(const BatchRequest& request) noexcept;

/// The sample that is read at a position of the request's step.
[[nodiscard]] SampleCopy sample_at(const BatchRequest& request, std::int64_t position,
                                   const LoaderOptions& options, const SampleOrder& order) noexcept;

}  // namespace lockstep
