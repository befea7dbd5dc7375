#include "lockstep/models/models.hpp"

#include "lockstep/core/error.hpp"
#include "models_detail.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 19> names{"mini-resnet",
                                                 "resnet18",
                                                 "resnet34",
                                                 "resnet50",
                                                 "resnet101",
                                                 "resnet152",
                                                 "resnext50_32x4d",
                                                 "resnext101_32x8d",
                                                 "resnext101_64x4d",
                                                 "wide_resnet50_2",
                                                 "wide_resnet101_2",
                                                 "mini-vit",
                                                 "vit_b_16",
                                                 "vit_b_32",
                                                 "vit_l_16",
                                                 "vit_l_32",
                                                 "vit_h_14",
                                                 "simple-cnn",
                                                 "mlp"};

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name) {
  return std::ranges::min(model_names(), {}, [&](auto each) { return edit_distance(each, name); });
}

std::vector<OwnModel>& own_models() {
  static std::vector<OwnModel> all;
  return all;
}

/// Error(usage) if an option of the built-in models is given and changes nothing.
void require_used_options(const OwnModel& own, const Graph& graph, const ModelOptions& options) {
  const auto require_used = [&](const char* option, auto member) {
    ModelOptions without = options;
    without.*member = ModelOptions().*member;
    if (options.*member == without.*member) return;
    const Graph other = own.make(without);
    if (other.fingerprint() != graph.fingerprint() ||
        !std::ranges::equal(other.parameters(), graph.parameters())) {
      return;
    }
    fail(ExitStatus::usage, "{} does not go with --model {} (it changes nothing); leave it out",
         option, own.name);
  };
  require_used("--width", &ModelOptions::width);
  require_used("--stem", &ModelOptions::stem);
  require_used("--shortcut", &ModelOptions::shortcut);
  require_used("--zero-init-residual", &ModelOptions::zero_init_residual);
}

Graph make_own(const OwnModel& own, const ModelOptions& options) {
  Graph graph = own.make(options);
  if (graph.name() != own.name) {
    fail(ExitStatus::usage,
         "the network of model '{}' is called '{}' (checkpoints name it, so that other commands "
         "find the model); give both one name",
         own.name, graph.name());
  }
  if (is_loss(graph.nodes().back().op) && graph.outputs() != options.classes) {
    fail(ExitStatus::usage,
         "model {} has {} outputs for {} classes (each class needs one); give its last layer "
         "ModelOptions::classes outputs",
         own.name, graph.outputs(), options.classes);
  }
  require_used_options(own, graph, options);
  return graph;
}

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> all(names.begin(), names.end());
  for (const OwnModel& own : own_models()) all.emplace_back(own.name);
  return all;
}

bool is_built_in(std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

void add_model(OwnModel model) {
  const std::vector<std::string_view> others = model_names();
  const bool taken = std::ranges::find(others, model.name) != others.end();
  constexpr const char* allowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (taken || model.name.empty() || model.name.find_first_not_of(allowed) != std::string::npos) {
    fail(ExitStatus::usage, "a model cannot be called '{}' ({}); choose another name", model.name,
         taken ? "there is one of this name"
               : "a name has only letters, digits, periods, hyphens and underscores");
  }
  if (!model.make) {
    fail(ExitStatus::usage,
         "model {} has no function (none was given); pass one that makes a graph", model.name);
  }
  own_models().push_back(std::move(model));
}

void add_loss(Graph& graph, ValueId logits, const ModelOptions& options) {
  graph.append(make_loss(options.loss, logits,
                         {.label_smoothing = options.label_smoothing,
                          .target_threshold = options.bce_target_threshold}));
}

Graph make_model(std::string_view name, const ModelOptions& options) {
  if (options.width < 0) {
    fail(ExitStatus::usage, "--width is {} (it must be positive, or 0 for the model's own)",
         options.width);
  }
  const auto own = std::ranges::find(own_models(), name, &OwnModel::name);
  if (own != own_models().end()) return make_own(*own, options);
  const bool is_vit = models_detail::is_vit(name);
  const bool residual = name != "simple-cnn" && name != "mlp" && !is_vit;
  for (const auto& [option, given] : {std::pair{"--zero-init-residual", options.zero_init_residual},
                                      {"--stem deep", options.stem == Stem::deep},
                                      {"--stem 7x7", options.stem == Stem::conv7x7},
                                      {"--stem 3x3", options.stem == Stem::conv3x3},
                                      {"--shortcut avgpool", options.shortcut == Shortcut::avgpool},
                                      {"--stochastic-depth", options.stochastic_depth > 0}}) {
    if (!given || residual) continue;
    fail(ExitStatus::usage,
         "{} does not go with --model {} (it is not a residual network of convolutions); leave it "
         "out, or take a resnet",
         option, name);
  }
  if (name == "simple-cnn") return models_detail::simple_cnn(options);
  if (name == "mlp") return models_detail::mlp(options);
  if (is_vit) return models_detail::vit(name, options);
  if (is_built_in(name)) {
    return models_detail::resnet(name, options);
  }
  fail(ExitStatus::usage, "--model is '{}' (there is no such model); did you mean {}? There are {}",
       name, nearest_name(name), fmt::join(model_names(), ", "));
}

}  // namespace lockstep
