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
  struct Sizes {
    std::size_t common = 0;  ///< bytes, at the beginning
    std::size_t a_rank = 0;  ///< bytes of each rank's part behind them, whole pages
  };
  /// Collective, with the same result on all ranks: nothing where one of them does not see it, as
  /// on another host. The memory is set aside at once, each rank's part near to it, and zero.
  [[nodiscard]] static Result make(Communicator& comm, const Sizes& sizes);

  [[nodiscard]] std::byte* common() const noexcept { return data_; }
  /// One after another.
  [[nodiscard]] std::byte* parts() const noexcept { return data_ + parts_; }

 private:
  /// What lies where in the file.
  struct Layout {
    std::size_t parts = 0;  ///< where they begin
    std::size_t a_rank = 0;
    std::size_t bytes = 0;
  };
  SharedSegment(std::byte* data, const Layout& layout)
      : data_(data), parts_(layout.parts), bytes_(layout.bytes) {}
  /// Sets the rank's part aside, rank 0 what all have in common too. Null where it cannot be had,
  /// and why.
  static std::unique_ptr<SharedSegment> map(int file, const Layout& layout, int rank,
                                            std::string& reason);

  std::byte* data_;
  std::size_t parts_;
  std::size_t bytes_;
};

}  // namespace lockstep
