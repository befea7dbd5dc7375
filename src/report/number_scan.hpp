#pragma once

#include "lockstep/core/function_ref.hpp"

#include <string_view>

namespace lockstep::report {

/// Calls `found(path, value)` for every number and null (NaN) of a JSON object, with paths such as
/// "loss" and "seconds.data". Strings are skipped. False if the text is not an object of numbers,
/// nulls, strings and such objects, for example because it is cut off. Many times faster than a
/// parser that builds a tree, which matters for the lines of single steps.
bool scan_numbers(std::string_view text, FunctionRef<void(std::string_view path, double)> found);

}  // namespace lockstep::report
