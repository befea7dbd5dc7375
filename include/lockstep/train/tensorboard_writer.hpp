#pragma once

#include <cstdint>
#include <memory>
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

  /// False where it could not be written: it is lost as a whole, and training goes on.
  bool scalar(std::string_view tag, std::int64_t step, double value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
