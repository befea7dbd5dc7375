#pragma once

#include "cache_file.hpp"
#include "lockstep/engine/algorithm_cache.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// The fastest convolution algorithms of GPUs, on disk.
class AlgorithmFile final : public AlgorithmCache {
 public:
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    return file_.find(key);
  }
  void add(const std::string& key, const std::string& algorithm) override {
    file_.add(key, algorithm);
    ++added_;
  }
  void save() { file_.save(); }
  [[nodiscard]] int added() const noexcept { return added_; }

 private:
  int added_ = 0;
  CacheFile file_{
      cache_path("gpu-convolutions.tsv"),
      {.header = "# GPU and library, convolution, fastest algorithm; may be deleted\n"}};
};

}  // namespace lockstep
