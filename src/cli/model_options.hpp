#pragma once

#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::cli {

/// Error(usage) if an option that describes --model is given without it. For a command whose
/// --model replaces the checkpoint's.
template <typename Arguments>
void require_model_of_options(const OptionTable<Arguments>& table,
                              const typename OptionTable<Arguments>::Parsed& parsed) {
  if (!parsed.value.config.model.empty()) return;
  for (const char* name : {"width", "stem", "shortcut"}) {
    if (!parsed.given.contains(name)) continue;
    fail(ExitStatus::usage, "--{0} {1} without --model (it is the {0} of that model); give both",
         name, table.get(parsed.value, name));
  }
}

}  // namespace lockstep::cli
