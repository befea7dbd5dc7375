#pragma once

namespace lockstep::test {

/// Number of calls of operator new in this program. MPI uses malloc, which is not counted.
[[nodiscard]] long allocation_count() noexcept;

}  // namespace lockstep::test
