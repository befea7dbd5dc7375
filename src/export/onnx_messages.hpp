#pragma once

#include "lockstep/core/shape.hpp"
#include "lockstep/io/file_parts.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// Encoders of the messages of onnx.proto that an exported network consists of.
namespace lockstep::onnx {

// AttributeProto
[[nodiscard]] std::string attribute(const std::string& name, std::int64_t value);
[[nodiscard]] std::string attribute(const std::string& name, float value);
[[nodiscard]] std::string attribute(const std::string& name,
                                    const std::vector<std::int64_t>& values);

/// NodeProto
struct NodeFields {
  std::string name;
  std::string op_type;
  std::vector<std::string> inputs;
  std::string output;
  std::vector<std::string> attributes = {};
};
[[nodiscard]] std::string node(const NodeFields& fields);

/// ValueInfoProto of a fp32 tensor whose first axis, the batch, has any extent.
[[nodiscard]] std::string value_info(const std::string& name, const Shape& shape,
                                     const std::string& description);

enum class ValueType { fp32, int64 };
/// TensorProto of values in row-major order. Ends with the values, which it views.
[[nodiscard]] FilePart tensor(const std::string& name, const Shape& shape, const FilePart& values,
                              ValueType type = ValueType::fp32);

/// StringStringEntryProto
[[nodiscard]] std::string entry(const std::string& key, const std::string& value);

}  // namespace lockstep::onnx
