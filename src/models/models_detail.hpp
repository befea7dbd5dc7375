#pragma once

#include "lockstep/models/models.hpp"

#include <string_view>

namespace lockstep::models_detail {

[[nodiscard]] Graph resnet(std::string_view name, const ModelOptions& options);
[[nodiscard]] Graph simple_cnn(const ModelOptions& options);
[[nodiscard]] Graph mlp(const ModelOptions& options);

}  // namespace lockstep::models_detail
