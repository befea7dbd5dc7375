#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// Memory that all ranks of a communicator have mapped. It has no name any more once it is there,
/// so it ends with the last process that has it, however that ends.
class SharedSegment final {
 public:
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  struct Result {
    std::unique_ptr<SharedSegment> segment;
    std::string reason;  ///< why there is none
  };
  /// Collective, with the same result on all ranks: nothing where one of them does not see it, as
  /// on another host. The memory is set aside at once, and zero.
  [[nodiscard]] static Result make(Communicator& comm, std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  SharedSegment(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  /// Null where it cannot be had, and why.
  static std::unique_ptr<SharedSegment> map(int file, std::size_t bytes, std::string& reason);

  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace lockstep
