#include "lockstep/models/models.hpp"

#include "lockstep/core/error.hpp"
#include "models_detail.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Family {
  std::vector<std::string_view> names;
  Graph (*make)(std::string_view name, const ModelOptions& options);
};
/// In the order of `--help`; the first has the options of residual networks.
const std::vector<Family>& families() {
  using namespace models_detail;
  const auto simple_cnn_of = [](std::string_view, const ModelOptions& options) {
    return simple_cnn(options);
  };
  const auto mlp_of = [](std::string_view, const ModelOptions& options) { return mlp(options); };
  static const std::vector<Family> all{{resnet_names(), resnet},
                                       {vit_names(), vit},
                                       {{"simple-cnn"}, simple_cnn_of},
                                       {{"mlp"}, mlp_of}};
  return all;
}
/// Null if no family has the name.
const Family* family_of(std::string_view name) {
  const auto has_it = [&](const Family& family) {
    return std::ranges::find(family.names, name) != family.names.end();
  };
  const auto found = std::ranges::find_if(families(), has_it);
  return found == families().end() ? nullptr : &*found;
}

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
  std::vector<std::string_view> all;
  for (const Family& family : families()) {
    all.insert(all.end(), family.names.begin(), family.names.end());
  }
  for (const OwnModel& own : own_models()) all.emplace_back(own.name);
  return all;
}

bool is_built_in(std::string_view name) {
  return family_of(name) != nullptr;
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
  const Family* const family = family_of(name);
  if (family == nullptr) {
    fail(ExitStatus::usage,
         "--model is '{}' (there is no such model); did you mean {}? There are {}", name,
         nearest_name(name), fmt::join(model_names(), ", "));
  }
  const bool residual = family == families().data();
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
  return family->make(name, options);
}

}  // namespace lockstep
