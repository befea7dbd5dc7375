#include "weight_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace lockstep {
namespace {

/// How another program names a tensor. Each `#` stands for a number; the n-th of `theirs` is the
/// n-th of `ours`, `#+1` one more. Both may end before `.weight` and `.bias`. Empty: not needed.
struct Rename {
  std::string_view theirs;
  std::string_view ours;
  std::size_t part = 0;
  std::size_t parts = 1;
};
/// The names of one program for one family of networks.
struct Naming {
  std::string_view mark;  ///< a name that no other naming has
  std::span<const Rename> table;
};

#define LOCKSTEP_LAYER "encoder.layers.encoder_layer_#."

constexpr std::array timm_vit{
    Rename{"cls_token", "class_token"},
    Rename{"pos_embed", "encoder.pos_embedding"},
    Rename{"patch_embed.proj", "conv_proj"},
    Rename{"blocks.#.norm1", LOCKSTEP_LAYER "ln_1"},
    Rename{"blocks.#.attn.qkv.weight", LOCKSTEP_LAYER "self_attention.in_proj_weight"},
    Rename{"blocks.#.attn.qkv.bias", LOCKSTEP_LAYER "self_attention.in_proj_bias"},
    Rename{"blocks.#.attn.proj", LOCKSTEP_LAYER "self_attention.out_proj"},
    Rename{"blocks.#.norm2", LOCKSTEP_LAYER "ln_2"},
    Rename{"blocks.#.mlp.fc1", LOCKSTEP_LAYER "mlp.0"},
    Rename{"blocks.#.mlp.fc2", LOCKSTEP_LAYER "mlp.3"},
    Rename{"norm", "encoder.ln"},
    Rename{"head", "heads.head"}};

/// transformers' ViTModel, within ViTForImageClassification or alone.
constexpr std::array hugging_face_vit{
    Rename{"embeddings.cls_token", "class_token"},
    Rename{"embeddings.position_embeddings", "encoder.pos_embedding"},
    Rename{"embeddings.patch_embeddings.projection", "conv_proj"},
    Rename{"encoder.layer.#.layernorm_before", LOCKSTEP_LAYER "ln_1"},
    Rename{"encoder.layer.#.attention.attention.query.weight",
           LOCKSTEP_LAYER "self_attention.in_proj_weight", 0, 3},
    Rename{"encoder.layer.#.attention.attention.key.weight",
           LOCKSTEP_LAYER "self_attention.in_proj_weight", 1, 3},
    Rename{"encoder.layer.#.attention.attention.value.weight",
           LOCKSTEP_LAYER "self_attention.in_proj_weight", 2, 3},
    Rename{"encoder.layer.#.attention.attention.query.bias",
           LOCKSTEP_LAYER "self_attention.in_proj_bias", 0, 3},
    Rename{"encoder.layer.#.attention.attention.key.bias",
           LOCKSTEP_LAYER "self_attention.in_proj_bias", 1, 3},
    Rename{"encoder.layer.#.attention.attention.value.bias",
           LOCKSTEP_LAYER "self_attention.in_proj_bias", 2, 3},
    Rename{"encoder.layer.#.attention.output.dense", LOCKSTEP_LAYER "self_attention.out_proj"},
    Rename{"encoder.layer.#.layernorm_after", LOCKSTEP_LAYER "ln_2"},
    Rename{"encoder.layer.#.intermediate.dense", LOCKSTEP_LAYER "mlp.0"},
    Rename{"encoder.layer.#.output.dense", LOCKSTEP_LAYER "mlp.3"},
    Rename{"layernorm", "encoder.ln"},
    Rename{"pooler", ""},  // of ViTModel alone: no classifier has it
    Rename{"classifier", "heads.head"}};

/// Files of torchvision's first versions of its transformers.
constexpr std::array first_torchvision_vit{
    Rename{LOCKSTEP_LAYER "mlp.linear_1", LOCKSTEP_LAYER "mlp.0"},
    Rename{LOCKSTEP_LAYER "mlp.linear_2", LOCKSTEP_LAYER "mlp.3"}};

/// transformers' ResNetModel, within ResNetForImageClassification or alone.
constexpr std::array hugging_face_resnet{
    Rename{"embedder.embedder.convolution", "conv1"},
    Rename{"embedder.embedder.normalization", "bn1"},
    Rename{"encoder.stages.#.layers.#.shortcut.convolution", "layer#+1.#.downsample.0"},
    Rename{"encoder.stages.#.layers.#.shortcut.normalization", "layer#+1.#.downsample.1"},
    Rename{"encoder.stages.#.layers.#.layer.#.convolution", "layer#+1.#.conv#+1"},
    Rename{"encoder.stages.#.layers.#.layer.#.normalization", "layer#+1.#.bn#+1"},
    Rename{"classifier.1", "fc"}};

/// OpenMMLab's, after its prefix `backbone.`.
constexpr std::array openmmlab_resnet{Rename{"head.fc", "fc"}};

#undef LOCKSTEP_LAYER

constexpr std::array namings{
    Naming{"patch_embed.proj.weight", timm_vit},
    Naming{"embeddings.patch_embeddings.projection.weight", hugging_face_vit},
    Naming{"encoder.layers.encoder_layer_0.mlp.linear_1.weight", first_torchvision_vit},
    Naming{"embedder.embedder.convolution.weight", hugging_face_resnet},
    Naming{"layer1.0.conv1.weight", openmmlab_resnet}};

/// The rest of `name` after what the pattern stands for, and the numbers in it.
struct Match {
  std::string_view rest;
  std::vector<std::string_view> numbers;
};
std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found{.rest = name, .numbers = {}};
  for (const char c : pattern) {
    if (c != '#') {
      if (!found.rest.starts_with(c)) return std::nullopt;
      found.rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(found.rest.find_first_not_of("0123456789"), found.rest.size());
    constexpr std::size_t most_digits = 6;
    if (end == 0 || end > most_digits) return std::nullopt;
    found.numbers.push_back(found.rest.substr(0, end));
    found.rest.remove_prefix(end);
  }
  if (!found.rest.empty() && !found.rest.starts_with('.')) return std::nullopt;
  return found;
}

std::string replaced(std::string_view ours, const Match& found) {
  constexpr std::string_view one_more = "+1";
  std::string name;
  auto number = found.numbers.begin();
  while (!ours.empty()) {
    const char c = ours.front();
    ours.remove_prefix(1);
    if (c != '#') {
      name += c;
      continue;
    }
    std::string digits(*number++);
    if (ours.starts_with(one_more)) {
      ours.remove_prefix(one_more.size());
      digits = std::to_string(std::stoi(digits) + 1);
    }
    name += digits;
  }
  return name.append(found.rest);
}

std::string_view without_prefixes(std::string_view name) {
  constexpr std::array prefixes{"module.", "_orig_mod.", "model.", "backbone.",
                                "vit.",    "deit.",      "resnet."};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view prefix : prefixes) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      found = true;
    }
  }
  return name;
}

}  // namespace

std::vector<KnownName> known_names(std::span<const std::string> names) {
  std::vector<std::string_view> bare;
  for (const std::string& name : names) bare.push_back(without_prefixes(name));
  std::span<const Rename> table;
  for (const Naming& naming : namings) {
    if (table.empty() && std::ranges::find(bare, naming.mark) != bare.end()) table = naming.table;
  }
  std::vector<KnownName> known;
  for (const std::string_view name : bare) {
    known.push_back({.name = std::string(name)});
    for (const Rename& rename : table) {
      const std::optional<Match> found = match(rename.theirs, name);
      if (!found) continue;
      if (rename.ours.empty()) {
        known.back().name.clear();
        break;
      }
      known.back() = {
          .name = replaced(rename.ours, *found), .part = rename.part, .parts = rename.parts};
      break;
    }
  }
  return known;
}

bool is_unneeded(std::string_view name) noexcept {
  return name.empty() || name.ends_with("num_batches_tracked") || name == "n_averaged";
}

}  // namespace lockstep
