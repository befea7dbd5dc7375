#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// Memory mapped by all ranks of a communicator. Its name is unlinked once all have mapped it, so
/// it is freed with the last of these processes, even after a crash. Segments of jobs that were
/// killed before that are removed by the user's next job on the host.
class SharedSegment final {
 public:
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  struct Result {
    std::unique_ptr<SharedSegment> segment;
    std::string reason;  ///< why `segment` is null
  };
  struct Sizes {
    std::size_t common = 0;  ///< bytes of the common part at the beginning
    std::size_t a_rank = 0;  ///< bytes of each rank's part after it; whole pages
  };
  /// Collective; all ranks get the same result: null if any rank cannot map the memory, for example
  /// on another host. Allocates zeroed memory at once, each rank's part near its processor.
  [[nodiscard]] static Result make(Communicator& comm, const Sizes& sizes);

  [[nodiscard]] std::byte* common() const noexcept { return data_; }
  /// The ranks' parts, contiguous.
  [[nodiscard]] std::byte* parts() const noexcept { return data_ + parts_; }

 private:
  /// Offsets and sizes in the file, in bytes.
  struct Layout {
    std::size_t parts = 0;  ///< offset of the first rank's part
    std::size_t a_rank = 0;
    std::size_t bytes = 0;
  };
  SharedSegment(std::byte* data, const Layout& layout)
      : data_(data), parts_(layout.parts), bytes_(layout.bytes) {}
  /// Allocates the rank's part (rank 0: the common part too) and maps the file. On failure returns
  /// null and sets `reason`.
  static std::unique_ptr<SharedSegment> map(int file, const Layout& layout, int rank,
                                            std::string& reason);

  std::byte* data_;
  std::size_t parts_;
  std::size_t bytes_;
};

}  // namespace lockstep
