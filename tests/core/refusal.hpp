#pragma once

#include "lockstep/core/error.hpp"

#include <string>

namespace lockstep::test {

/// The text of the Error(usage) that `work` throws, or else a description of what happened.
template <typename Work>
std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.status() == ExitStatus::usage) return error.what();
    return std::string("another status: ") + error.what();
  }
  return "nothing was refused";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lockstep::test
