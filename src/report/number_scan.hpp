#pragma once

#include "lockstep/core/function_ref.hpp"

#include <string_view>

namespace lockstep::report {

/// Calls `found(path, value)` for every number and null (NaN) of a JSON object, with paths such as
/// "loss" and "seconds.data". Numbers in arrays are skipped. False if the text is no such object,
/// for example because it is cut off. For the lines of single steps, of which there are most.
bool scan_numbers(std::string_view text, FunctionRef<void(std::string_view path, double)> found);

}  // namespace lockstep::report
