#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Scalars as TensorBoard reads them: one event file a job, records framed as TFRecord (length and
/// data each with a masked CRC-32C), each an Event message. Rank 0's alone.
class TensorboardWriter final {
 public:
  /// Cuts the directory's event files to the records of step `resumed_step` and before; -1: a fresh
  /// run, all of them. Error(cannot_write).
  TensorboardWriter(const std::string& directory, std::int64_t resumed_step);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  /// Error(cannot_write).
  void scalar(std::string_view tag, std::int64_t step, double value);

 private:
  void append(std::string_view event);

  std::string path_;
  int file_ = -1;
};

}  // namespace lockstep
