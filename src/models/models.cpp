#include "lockstep/models/models.hpp"

#include "lockstep/core/error.hpp"
#include "models_detail.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 8> names{"mini-resnet", "resnet18",  "resnet34",   "resnet50",
                                                "resnet101",   "resnet152", "simple-cnn", "mlp"};

}  // namespace

std::span<const std::string_view> model_names() { return names; }

Graph make_model(std::string_view name, const ModelOptions& options) {
  if (name == "mini-resnet") return models_detail::mini_resnet(options);
  if (name == "simple-cnn") return models_detail::simple_cnn(options);
  if (name == "mlp") return models_detail::mlp(options);
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return models_detail::resnet(name, options);
  }
  fail(ExitStatus::usage, "--model is '{}' (there is no such model) use one of {}", name,
       fmt::join(names, ", "));
}

}  // namespace lockstep
