#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_path.hpp"
#include "stored_array.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// The tensors of a file of weights by the names there, in its order.
struct StoredWeights {
  std::vector<Descriptor> files;
  std::vector<StoredArray> model;
  std::vector<StoredArray> average;  ///< of the weights over steps; empty: there is none
  std::map<std::string, std::string> metadata = {};
  std::set<std::uint64_t> verified = {};  ///< beginnings of checked parts that have been compared
};

/// These bytes of a file, or fewer if it ends before.
[[nodiscard]] std::string read_text(const Descriptor& file, const std::string& path,
                                    std::uint64_t begin, std::uint64_t bytes);

/// A file of torch.save: a zip archive, or, as before version 1.6, pickles and storages in turn. A
/// state dict, or one that other dicts hold by a usual name (`state_dict`, `model`, ...).
/// Error(bad_input) if it is damaged, big-endian, or holds anything else. nullopt: another
/// program's archive, or one of TorchScript.
[[nodiscard]] std::optional<StoredWeights> read_torch_zip(Descriptor file, const std::string& path);
[[nodiscard]] StoredWeights read_torch_legacy(Descriptor file, const std::string& path);

/// https://huggingface.co/docs/safetensors. Error(bad_input) if it is damaged, or tensors overlap.
[[nodiscard]] StoredWeights read_safetensors(Descriptor file, const std::string& path);
/// `model.safetensors.index.json`, which names the file of each tensor, in its own directory.
[[nodiscard]] StoredWeights read_safetensors_index(const Descriptor& index, const FilePath& path);

}  // namespace lockstep
