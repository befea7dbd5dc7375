#pragma once

#include "stored_array.hpp"

#include <string_view>

/// The functions and classes that a pickle of weights may name, as `module.name`.
namespace lockstep::pickle {

[[nodiscard]] bool is_known(std::string_view name) noexcept;

/// What calling one makes.
enum class Makes { dict, tensor, first_argument, opaque };
[[nodiscard]] Makes made_by(std::string_view name) noexcept;

/// Of a class such as torch.FloatStorage; null: it is none.
[[nodiscard]] const ElementKind* storage_kind(std::string_view name) noexcept;

}  // namespace lockstep::pickle
