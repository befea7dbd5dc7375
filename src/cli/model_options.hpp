#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <cstdint>
#include <vector>

namespace lockstep::cli {

/// Defaults of a command that describes a network by --model, without data.
[[nodiscard]] inline Config described_config(std::int64_t batch_size) {
  Config config;
  config.model.clear();
  config.image_size = 224;
  config.channels = 3;
  config.classes = 1000;
  config.batch_size = batch_size;
  return config;
}

/// The options of such a network.
[[nodiscard]] inline std::vector<SharedOption> described_options() {
  return {{.name = "model"},
          {.name = "width"},
          {.name = "stem"},
          {.name = "shortcut"},
          {.name = "image-size", .help = "height and width of the network's input", .min = 1},
          {.name = "channels", .help = "image channels", .min = 1},
          {.name = "classes", .help = "outputs of the network", .min = 1}};
}

/// Those of the network that the options describe.
[[nodiscard]] inline ModelOptions model_options(const Config& config) {
  return {.image = {.channels = config.channels,
                    .height = config.image_size,
                    .width = config.image_size},
          .classes = config.classes,
          .width = config.width,
          .stem = config.stem,
          .shortcut = config.shortcut};
}

[[nodiscard]] inline Graph described_model(const Config& config) {
  return make_model(config.model, model_options(config));
}

/// Error(usage) if an option that describes --model is given without it. For a command whose
/// --model replaces the checkpoint's.
template <typename Arguments>
void require_model_of_options(const OptionTable<Arguments>& table,
                              const typename OptionTable<Arguments>::Parsed& parsed,
                              const std::string& model) {
  if (!model.empty()) return;
  for (const char* name : {"width", "stem", "shortcut"}) {
    if (!parsed.given.contains(name)) continue;
    fail(ExitStatus::usage, "--{0} {1} without --model (it is the {0} of that model); give both",
         name, table.get(parsed.value, name));
  }
}

}  // namespace lockstep::cli
