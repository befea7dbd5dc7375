#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "position_embeddings.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

using StoredTensors = std::vector<CheckpointReader::Tensor>;
using TensorIndex = std::unordered_map<std::string, const CheckpointReader::Tensor*>;

/// By name: first by those in the file, which a network of one's own may share with another
/// program.
[[nodiscard]] TensorIndex index_of(const StoredTensors& tensors);

/// The file's tensor with this name and shape; Error(bad_input) if there is none. `group` is for
/// the message.
[[nodiscard]] const CheckpointReader::Tensor& find(const TensorIndex& index,
                                                   const std::string& name, const Shape& shape,
                                                   std::string_view group);

/// How the embeddings of positions of a file are brought to the network's image size.
struct PositionGrids {
  PositionGrid from;
  PositionGrid to;
};

/// Where a parameter's values are.
struct TensorPlace {
  const CheckpointReader::Tensor* tensor = nullptr;  ///< null: not in the file
  std::optional<PositionGrids> grids = {};
};

/// What a network's parameters are matched with.
struct MatchedFile {
  const CheckpointReader& reader;
  const StoredTensors& tensors;
  const char* group;
};
/// By ParameterId: the tensor that it takes; adds StoredParameters::notes. Error(bad_input) as
/// stored_parameters().
[[nodiscard]] std::vector<TensorPlace> match_parameters(const MatchedFile& file, const Graph& graph,
                                                        const StoredParameters& options);

}  // namespace lockstep
