#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// Names of algorithms that were found to be the fastest, by what they compute, and on what.
class AlgorithmCache {
 public:
  virtual ~AlgorithmCache() = default;
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual void add(const std::string& key, const std::string& algorithm) = 0;
};

}  // namespace lockstep
