#include "lockstep/core/huge_pages.hpp"

#include <sys/mman.h>

#include <memory>

namespace lockstep {

void advise_huge_pages(void* begin, std::size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  constexpr std::size_t page = std::size_t{1} << 21;
  void* first = begin;
  if (std::align(page, page, first, bytes) == nullptr) return;
  static_cast<void>(::madvise(first, bytes / page * page, MADV_HUGEPAGE));
#endif
}

}  // namespace lockstep
