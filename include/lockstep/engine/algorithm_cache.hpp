#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// Cache of the fastest algorithm's name. The key names the computation and the device.
class AlgorithmCache {
 public:
  virtual ~AlgorithmCache() = default;
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual void add(const std::string& key, const std::string& algorithm) = 0;
};

}  // namespace lockstep
