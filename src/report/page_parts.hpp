#pragma once

#include <string_view>

namespace lockstep::report {

/// Files embedded when the program was built (cmake/LockstepReport.cmake).
struct PageParts {
  std::string_view page;
  std::string_view style;
  std::string_view script;
  std::string_view library;        ///< dygraph.min.js; empty: absent
  std::string_view library_style;  ///< dygraph.min.css
  std::string_view library_licence;
};
extern const PageParts page_parts;

}  // namespace lockstep::report
