#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/core/shape.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct StoredWeights;

/// A file of weights that another program wrote: torch.save's (.pt, .pth; also of versions before
/// 1.6), safetensors, or the index of several such files. Nothing in it is executed. Tensors have
/// torchvision's names and shapes, also where the file has those of timm or Hugging Face, or a
/// wrapper's prefix. All functions throw Error(bad_input), naming the tensor, if the file is
/// damaged, or the tensor is not of floating-point numbers or not finite.
class WeightsFile final {
 public:
  /// nullopt: the content is of another format.
  [[nodiscard]] static std::optional<WeightsFile> open(const FilePath& path);
  WeightsFile(WeightsFile&&) noexcept;
  WeightsFile& operator=(WeightsFile&&) noexcept;
  ~WeightsFile();

  struct Tensor {
    std::string name;
    Shape shape;
    std::string stored_as;  ///< the name in the file, for messages
    /// Indices of the arrays in the file, which are joined along the first axis.
    std::vector<std::size_t> arrays;
  };
  /// In file order, without counters of batches.
  [[nodiscard]] const std::vector<Tensor>& model() const noexcept { return model_; }
  /// An average of the weights; empty: there is none.
  [[nodiscard]] const std::vector<Tensor>& average() const noexcept { return average_; }
  /// Texts beside the tensors, as safetensors_file() writes them.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept;

  /// Of model() or average(), rounded to fp32, in row-major order.
  [[nodiscard]] std::vector<float> read_model(const std::string& name) const;
  [[nodiscard]] std::vector<float> read_average(const std::string& name) const;
  /// Reads all values of floating-point numbers, each once, and discards them.
  void verify() const;

 private:
  using Places = std::unordered_map<std::string, std::size_t>;  ///< indices of tensors

  explicit WeightsFile(std::string path, StoredWeights stored);
  [[nodiscard]] std::vector<float> read(const std::vector<Tensor>& tensors, const Places& places,
                                        const std::string& name) const;
  void append_array(std::size_t index, std::vector<float>& values) const;

  std::string path_;
  std::unique_ptr<StoredWeights> stored_;
  std::vector<Tensor> model_;
  std::vector<Tensor> average_;
  Places model_places_;
  Places average_places_;
};

}  // namespace lockstep
