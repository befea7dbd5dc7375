#pragma once

#include "lockstep/models/models.hpp"

#include <string_view>
#include <vector>

namespace lockstep::models_detail {

/// The names that resnet() takes.
[[nodiscard]] std::vector<std::string_view> resnet_names();
[[nodiscard]] Graph resnet(std::string_view name, const ModelOptions& options);
[[nodiscard]] Graph simple_cnn(const ModelOptions& options);
[[nodiscard]] Graph mlp(const ModelOptions& options);
/// The names that vit() takes.
[[nodiscard]] std::vector<std::string_view> vit_names();
/// A vision transformer with torchvision's names and initial values.
[[nodiscard]] Graph vit(std::string_view name, const ModelOptions& options);

}  // namespace lockstep::models_detail
