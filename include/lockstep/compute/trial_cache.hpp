#pragma once

#include "lockstep/engine/convolution_trial.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class CacheFile;

/// Times of convolutions in a text file, so that a processor is measured only once. Used by one
/// process, rank 0. The file is read on first use. An unreadable file counts as empty and a failure
/// to write is ignored, because every start can measure again.
class TrialCache final {
 public:
  /// `path`: empty: nothing is read or written.
  explicit TrialCache(std::string path);
  TrialCache(const TrialCache&) = delete;
  TrialCache& operator=(const TrialCache&) = delete;
  ~TrialCache();

  /// For this processor.
  [[nodiscard]] std::optional<ConvolutionTimes> find(const std::string& key);
  void add(const std::string& key, const ConvolutionTimes& times);
  /// Adds new entries to the file, if there are any.
  void save();

 private:
  [[nodiscard]] std::string on_this_processor(const std::string& key);

  std::unique_ptr<CacheFile> file_;
  std::string processor_;  ///< set on first use
};

/// lockstep/convolutions.tsv in $XDG_CACHE_HOME, else in ~/.cache; empty if neither is set.
[[nodiscard]] std::string trial_cache_path();

}  // namespace lockstep
