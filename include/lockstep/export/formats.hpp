#pragma once

#include "lockstep/export/trained_model.hpp"
#include "lockstep/io/file_parts.hpp"

namespace lockstep {

// Files of other programs. The result views the values of `model`.

/// What torch.save() writes of a module's state dict: a zip archive (torch/serialization.py) with
/// torchvision's names, fp32. torch.load() reads it with weights_only=True. Error(usage) from 4
/// GiB.
[[nodiscard]] FileParts torch_file(const TrainedModel& model);

/// The same tensors in https://huggingface.co/docs/safetensors, with what is known of the training
/// in `__metadata__`.
[[nodiscard]] FileParts safetensors_file(const TrainedModel& model);

enum class OnnxInput {
  normalized,  ///< (pixel / 255 - mean) / std
  pixels,      ///< 0 to 255, normalized by the first ops
};
/// The network up to its logits as an ONNX model of opset 17
/// (https://onnx.ai/onnx/repo-docs/IR.html): input `images` fp32 (N, C, H, W) of any N, output
/// `logits` fp32 (N, classes). Error(usage) from 2 GiB, and for OnnxInput::pixels without usable
/// mean and std.
[[nodiscard]] FileParts onnx_file(const TrainedModel& model, OnnxInput input);

}  // namespace lockstep
