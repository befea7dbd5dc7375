#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::doctor {

enum class Verdict {
  ok,
  warn,  ///< a run would work, but not as well as it could
  fail,  ///< a run would stop
};

/// The result of one check.
struct Finding {
  std::string check;  ///< "run-dir"
  Verdict verdict = Verdict::ok;
  std::string text = {};  ///< one line; not ok: *problem (why); suggestion*
  std::vector<std::pair<std::string, double>> values = {};  ///< what was measured, for --json
};

}  // namespace lockstep::doctor
