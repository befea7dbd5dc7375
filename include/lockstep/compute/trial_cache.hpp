#pragma once

#include "lockstep/engine/convolution_trial.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class CacheFile;

/// Times of convolutions in a text file: what was measured on a processor once is not measured
/// again. Of one process at a time; rank 0's. It is read when it is first asked. A file that cannot
/// be read holds nothing, and one that cannot be written is left, as every start can measure anew.
class TrialCache final {
 public:
  /// `path`: empty: nothing is read or kept.
  explicit TrialCache(std::string path);
  TrialCache(const TrialCache&) = delete;
  TrialCache& operator=(const TrialCache&) = delete;
  ~TrialCache();

  /// Of this processor.
  [[nodiscard]] std::optional<ConvolutionTimes> find(const std::string& key);
  void add(const std::string& key, const ConvolutionTimes& times);
  /// Adds to the file what was added here, if anything was.
  void save();

 private:
  [[nodiscard]] std::string on_this_processor(const std::string& key);

  std::unique_ptr<CacheFile> file_;
  std::string processor_;  ///< once it was asked for
};

/// lockstep/convolutions.tsv in $XDG_CACHE_HOME, else in ~/.cache; empty where there is neither.
[[nodiscard]] std::string trial_cache_path();

}  // namespace lockstep
