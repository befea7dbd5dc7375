#include "onnx_messages.hpp"

#include "lockstep/io/protobuf.hpp"
#include "onnx_fields.hpp"

#include <utility>

namespace lockstep::onnx {
namespace {

using protobuf::bytes_field;
using protobuf::bytes_header;
using protobuf::float_field;
using protobuf::varint_field;

std::string int_field(int number, std::int64_t value) {
  return varint_field(number, static_cast<std::uint64_t>(value));
}

}  // namespace

std::string attribute(const std::string& name, std::int64_t value) {
  return bytes_field(AttributeProto::name, name) + int_field(AttributeProto::i, value) +
         varint_field(AttributeProto::type, AttributeProto::INT);
}

std::string attribute(const std::string& name, float value) {
  return bytes_field(AttributeProto::name, name) + float_field(AttributeProto::f, value) +
         varint_field(AttributeProto::type, AttributeProto::FLOAT);
}

std::string attribute(const std::string& name, const std::vector<std::int64_t>& values) {
  std::string message = bytes_field(AttributeProto::name, name);
  for (const std::int64_t value : values) message += int_field(AttributeProto::ints, value);
  return message + varint_field(AttributeProto::type, AttributeProto::INTS);
}

std::string node(const NodeFields& fields) {
  std::string message;
  for (const std::string& input : fields.inputs) message += bytes_field(NodeProto::input, input);
  message += bytes_field(NodeProto::output, fields.output) +
             bytes_field(NodeProto::name, fields.name) +
             bytes_field(NodeProto::op_type, fields.op_type);
  for (const std::string& each : fields.attributes) {
    message += bytes_field(NodeProto::attribute, each);
  }
  return message;
}

std::string value_info(const std::string& name, const Shape& shape,
                       const std::string& description) {
  const auto axis = [](const std::string& dimension) {
    return bytes_field(TensorShapeProto::dim, dimension);
  };
  std::string axes = axis(bytes_field(TensorShapeProto::Dimension::dim_param, "batch"));
  for (const std::int64_t extent : shape.extents()) {
    axes += axis(int_field(TensorShapeProto::Dimension::dim_value, extent));
  }
  const std::string type = varint_field(TypeProto::Tensor::elem_type, TensorProto::FLOAT) +
                           bytes_field(TypeProto::Tensor::shape, axes);
  return bytes_field(ValueInfoProto::name, name) +
         bytes_field(ValueInfoProto::type, bytes_field(TypeProto::tensor_type, type)) +
         bytes_field(ValueInfoProto::doc_string, description);
}

FilePart tensor(const std::string& name, const Shape& shape, const FilePart& values,
                ValueType type) {
  std::string message;
  for (const std::int64_t extent : shape.extents()) {
    message += int_field(TensorProto::dims, extent);
  }
  message += varint_field(TensorProto::data_type,
                          type == ValueType::fp32 ? TensorProto::FLOAT : TensorProto::INT64) +
             bytes_field(TensorProto::name, name) +
             bytes_header(TensorProto::raw_data, values.size());
  return {.bytes = message + values.bytes, .view = values.view};
}

std::string entry(const std::string& key, const std::string& value) {
  return bytes_field(StringStringEntryProto::key, key) +
         bytes_field(StringStringEntryProto::value, value);
}

}  // namespace lockstep::onnx
