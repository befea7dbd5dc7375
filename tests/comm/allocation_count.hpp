#pragma once

namespace lockstep::test {

/// How often this program called operator new. MPI itself takes malloc and is not counted.
[[nodiscard]] long allocation_count() noexcept;

}  // namespace lockstep::test
