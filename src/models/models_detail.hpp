#pragma once

#include "lockstep/models/models.hpp"

#include <string_view>

namespace lockstep::models_detail {

[[nodiscard]] Graph resnet(std::string_view name, const ModelOptions& options);
[[nodiscard]] Graph simple_cnn(const ModelOptions& options);
[[nodiscard]] Graph mlp(const ModelOptions& options);
[[nodiscard]] bool is_vit(std::string_view name);
/// A vision transformer with torchvision's names and initial values.
[[nodiscard]] Graph vit(std::string_view name, const ModelOptions& options);

}  // namespace lockstep::models_detail
