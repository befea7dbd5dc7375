#pragma once

#include "lockstep/doctor/judge.hpp"

#include <boost/test/unit_test.hpp>

#include <initializer_list>
#include <ostream>
#include <string>

namespace lockstep::doctor {

inline std::ostream& operator<<(std::ostream& stream, Verdict verdict) {
  constexpr const char* names[] = {"ok", "warn", "fail"};
  return stream << names[static_cast<int>(verdict)];
}

/// Checks the verdict, and that the text contains each of the words.
inline void expect(const Finding& finding, Verdict verdict,
                   std::initializer_list<std::string> words) {
  BOOST_TEST(finding.verdict == verdict, finding.text);
  for (const std::string& word : words) {
    BOOST_TEST(finding.text.find(word) != std::string::npos,
               "'" << word << "' is not in: " << finding.text);
  }
}

/// Checks that the text contains none of the words.
inline void expect_without(const Finding& finding, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    BOOST_TEST(finding.text.find(word) == std::string::npos,
               "'" << word << "' is in: " << finding.text);
  }
}

}  // namespace lockstep::doctor
