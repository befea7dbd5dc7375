#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// 32 hexadecimal digits from the kernel, which nobody can guess.
[[nodiscard]] std::string random_name();
[[nodiscard]] bool is_random_name(std::string_view name) noexcept;

}  // namespace lockstep
