#include "match_tensors.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/name_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

/// Error(bad_input) if the file has the tensor under a name that a wrapper has extended, as
/// PyTorch's DataParallel ("module.") and torch.compile ("_orig_mod.") do.
void refuse_prefix(const TensorIndex& index, const std::string& name, std::string_view where) {
  const std::string* stored = nullptr;  // the shortest: layer1.0.conv1.weight ends in a name, too
  for (const auto& [other, tensor] : index) {
    if (!other.ends_with("." + name)) continue;
    if (stored == nullptr || other.size() < stored->size()) stored = &other;
  }
  if (stored == nullptr) return;
  const std::string prefix = stored->substr(0, stored->size() - name.size());
  const auto has_prefix = [&](const auto& entry) { return entry.second->name.starts_with(prefix); };
  if (!std::ranges::all_of(index, has_prefix)) return;
  fail(ExitStatus::bad_input,
       "the checkpoint has {}/{} under the name {} (a module around the network was saved, such as "
       "PyTorch's DataParallel); write the names without {}: python3 -c \"import h5py, sys; g = "
       "h5py.File(sys.argv[1], 'a')['{}']; [g.move(n, n[{}:]) for n in list(g) if "
       "n.startswith('{}')]\" FILE",
       where, name, *stored, prefix, where, prefix.size(), prefix);
}

/// Parameters of the network's last linear layer.
std::span<const ParameterId> head_of(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (std::holds_alternative<Linear>(node->op)) return node->parameters;
  }
  return {};
}

/// Tensors by which a file and a network differ, for messages.
struct Differences {
  std::vector<std::string> missing;  ///< in the file
  std::vector<std::string> shapes;   ///< that differ
  std::vector<std::string> unused;   ///< in the network

  [[nodiscard]] bool empty() const noexcept {
    return missing.empty() && shapes.empty() && unused.empty();
  }
};

[[noreturn]] void refuse(const Differences& differences, const Graph& graph) {
  std::vector<std::string> parts;
  if (!differences.missing.empty()) parts.push_back("has no " + listed(differences.missing));
  if (!differences.shapes.empty()) parts.push_back("has " + listed(differences.shapes));
  if (!differences.unused.empty()) {
    parts.push_back("has " + listed(differences.unused) + ", which the network lacks");
  }
  fail(ExitStatus::bad_input,
       "the checkpoint is not one of {}: it {} (it is another model's, or has other classes); give "
       "the --model, --width and --stem it was written with; for new classes --init-from with "
       "--init-head new; to take what fits, --init-partial",
       graph.name(), fmt::join(parts, "; it "));
}

void add_notes(const Differences& differences, std::vector<std::string>* notes) {
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) notes->push_back(fmt::format("--init-partial: {} {}", what, listed(names)));
  };
  add("not in the file, so initialized:", differences.missing);
  add("of another shape, so initialized:", differences.shapes);
  add("in the file, but not in the network:", differences.unused);
}

std::string other_shape(const CheckpointReader::Tensor& tensor, const Shape& expected) {
  return fmt::format("{} of {}, not {}", tensor.stored_as, to_string(tensor.shape),
                     to_string(expected));
}

std::string with_shape(const std::string& name, const Shape& shape) {
  return fmt::format("{} ({})", name, to_string(shape));
}

/// nullopt: the parameter is no embedding of positions, has the network's grid, or the file does
/// not tell its own. That of another program's file is taken for a square.
std::optional<PositionGrids> grids_of(const CheckpointReader& reader, const Graph& graph,
                                      ParameterId id, const Shape& stored) {
  const Shape& shape = graph.parameters()[static_cast<std::size_t>(id)].shape;
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<Tokens>(node.op) || node.parameters.back() != id) continue;
    if (stored.rank() != 3 || stored[0] != 1 || stored[2] != shape[2]) return std::nullopt;
    const Shape& pixels =
        graph.nodes()[static_cast<std::size_t>(std::get<Tokens>(node.op).input)].output;
    const PositionGrid to{.height = pixels[1], .width = pixels[2]};
    PositionGrid from = square_grid(stored);
    if (const auto& image = reader.info().image) {
      const Shape& input = graph.input_shape();
      from = {.height = image->height * to.height / input[1],
              .width = image->width * to.width / input[2]};
    }
    if (from.height * from.width + 1 != stored[1] || from.height == 0) return std::nullopt;
    if (from.height == to.height && from.width == to.width) return std::nullopt;
    return PositionGrids{.from = from, .to = to};
  }
  return std::nullopt;
}

std::string head_note(const Graph& graph, std::span<const ParameterId> head,
                      const CheckpointReader::Tensor* stored) {
  const Parameter& weight = graph.parameters()[static_cast<std::size_t>(head.front())];
  return fmt::format("{} ({}) starts from initial values: {}; --init-head keep requires it",
                     weight.name, to_string(weight.shape),
                     stored == nullptr ? "the file has none"
                                       : "it is " + to_string(stored->shape) + " in the file");
}

std::string positions_note(const PositionGrids& grids) {
  return fmt::format("embeddings of positions are interpolated from {}x{} to {}x{}",
                     grids.from.height, grids.from.width, grids.to.height, grids.to.width);
}

/// Which tensor of a file each parameter of a network takes; errors as stored_parameters().
class Matching final {
 public:
  Matching(const MatchedFile& file, const Graph& graph, const StoredParameters& options)
      : file_(file),
        graph_(graph),
        options_(options),
        index_(index_of(file.tensors)),
        head_(head_of(graph)) {
    const auto fits = [this](ParameterId id) {
      const auto* tensor = stored(parameter(id).name);
      return tensor != nullptr && tensor->shape == parameter(id).shape;
    };
    has_new_head_ = options.head == InitHead::fresh ||
                    (options.head == InitHead::automatic && !std::ranges::all_of(head_, fits));
  }

  [[nodiscard]] std::vector<TensorPlace> places() {
    std::vector<TensorPlace> places;
    places.reserve(graph_.parameters().size());
    for (std::size_t id = 0; id < graph_.parameters().size(); ++id) {
      places.push_back(place_of(static_cast<ParameterId>(id)));
    }
    match_statistics();
    const auto taken = [](const TensorPlace& place) { return place.tensor != nullptr; };
    if (options_.partial && std::ranges::none_of(places, taken)) refuse(differences_, graph_);
    list_unused();
    if (!options_.partial && !differences_.empty()) refuse(differences_, graph_);
    if (options_.notes != nullptr) add_all_notes(places);
    return places;
  }

 private:
  [[nodiscard]] const Parameter& parameter(ParameterId id) const {
    return graph_.parameters()[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const CheckpointReader::Tensor* stored(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : found->second;
  }

  [[nodiscard]] TensorPlace place_of(ParameterId id) {
    const std::string& name = parameter(id).name;
    const Shape& shape = parameter(id).shape;
    known_.insert(name);
    if (has_new_head_ && std::ranges::find(head_, id) != head_.end()) return {};
    const auto* tensor = stored(name);
    if (tensor == nullptr) {
      if (!options_.partial) refuse_prefix(index_, name, file_.group);
      differences_.missing.push_back(with_shape(name, shape));
      return {};
    }
    const auto grids = grids_of(file_.reader, graph_, id, tensor->shape);
    if (tensor->shape != shape && !grids) {
      differences_.shapes.push_back(other_shape(*tensor, shape));
      return {};
    }
    return {.tensor = tensor, .grids = grids};
  }

  void match_statistics() {
    for (const RunningStatistic& statistic : graph_.statistics()) {
      known_.insert(statistic.name);
      const auto* tensor = stored(statistic.name);
      const Shape shape{statistic.channels};
      if (tensor == nullptr) {
        differences_.missing.push_back(with_shape(statistic.name, shape));
      } else if (tensor->shape != shape) {
        differences_.shapes.push_back(other_shape(*tensor, shape));
      }
    }
  }

  void list_unused() {
    for (const auto& tensor : file_.tensors) {
      if (known_.contains(tensor.name) || known_.contains(tensor.stored_as)) continue;
      differences_.unused.push_back(with_shape(tensor.stored_as, tensor.shape));
    }
  }

  void add_all_notes(const std::vector<TensorPlace>& places) const {
    add_notes(differences_, options_.notes);
    if (has_new_head_ && options_.head == InitHead::automatic) {
      options_.notes->push_back(head_note(graph_, head_, stored(parameter(head_.front()).name)));
    }
    for (const TensorPlace& place : places) {
      if (place.grids) options_.notes->push_back(positions_note(*place.grids));
    }
  }

  const MatchedFile& file_;
  const Graph& graph_;
  const StoredParameters& options_;
  TensorIndex index_;
  std::span<const ParameterId> head_;
  bool has_new_head_ = false;
  Differences differences_;
  std::unordered_set<std::string> known_;  ///< names of the network
};

}  // namespace

TensorIndex index_of(const StoredTensors& tensors) {
  TensorIndex index;
  for (const auto& tensor : tensors) index.emplace(tensor.stored_as, &tensor);
  for (const auto& tensor : tensors) index.emplace(tensor.name, &tensor);
  return index;
}

const CheckpointReader::Tensor& find(const TensorIndex& index, const std::string& name,
                                     const Shape& shape, std::string_view where) {
  const auto found = index.find(name);
  if (found == index.end()) {
    refuse_prefix(index, name, where);
    fail(ExitStatus::bad_input,
         "the checkpoint has no {}/{} ({} is expected there; it is another model's); give the "
         "--model "
         "it was written with",
         where, name, to_string(shape));
  }
  if (found->second->shape != shape) {
    fail(ExitStatus::bad_input,
         "{}/{} is {} in the checkpoint, but {} in the network (it is another model's or has other "
         "classes); give the --model, --width and --stem it was written with; for new classes "
         "--init-from with --init-head new",
         where, name, to_string(found->second->shape), to_string(shape));
  }
  return *found->second;
}

std::vector<TensorPlace> match_parameters(const MatchedFile& file, const Graph& graph,
                                          const StoredParameters& options) {
  return Matching(file, graph, options).places();
}

}  // namespace lockstep
