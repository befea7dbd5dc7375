#pragma once

#include <cstddef>

namespace lockstep {

/// Asks the kernel for huge pages wherever they fit wholly in this memory. Call before first touch:
/// each first touch of a page costs a fault, and there are 512 times fewer huge pages. No effect
/// where the system has none.
void advise_huge_pages(void* begin, std::size_t bytes) noexcept;

}  // namespace lockstep
