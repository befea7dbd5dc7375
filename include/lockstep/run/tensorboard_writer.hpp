#pragma once

#include "lockstep/run/append_file.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes scalars for TensorBoard: one event file per job, TFRecord framing (length and data each
/// with a masked CRC-32C), each record an Event message. Rank 0 only.
class TensorboardWriter final {
 public:
  /// Truncates the directory's event files to the records up to step `resumed_step`; -1: a fresh
  /// run, drops all records. Error(cannot_write).
  TensorboardWriter(const std::string& directory, std::int64_t resumed_step);

  /// False if the record could not be written: it is dropped whole, and training continues.
  bool scalar(std::string_view tag, std::int64_t step, double value);

 private:
  AppendFile file_;
};

}  // namespace lockstep
