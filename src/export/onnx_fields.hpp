#pragma once

/// Field numbers and values of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto that
/// onnx_file() writes, by the names there.
namespace lockstep::onnx {

namespace ModelProto {
inline constexpr int ir_version = 1, producer_name = 2, producer_version = 3, doc_string = 6,
                     graph = 7, opset_import = 8, metadata_props = 14;
}
namespace OperatorSetIdProto {
inline constexpr int version = 2;
}
namespace StringStringEntryProto {
inline constexpr int key = 1, value = 2;
}
namespace GraphProto {
inline constexpr int node = 1, name = 2, initializer = 5, input = 11, output = 12;
}
namespace NodeProto {
inline constexpr int input = 1, output = 2, name = 3, op_type = 4, attribute = 5;
}
namespace AttributeProto {
inline constexpr int name = 1, f = 2, i = 3, ints = 8, type = 20;
enum AttributeType { FLOAT = 1, INT = 2, INTS = 7 };
}  // namespace AttributeProto
namespace TensorProto {
inline constexpr int dims = 1, data_type = 2, name = 8, raw_data = 9;
enum DataType { FLOAT = 1, INT64 = 7 };
}  // namespace TensorProto
namespace ValueInfoProto {
inline constexpr int name = 1, type = 2, doc_string = 3;
}
namespace TypeProto {
inline constexpr int tensor_type = 1;
namespace Tensor {
inline constexpr int elem_type = 1, shape = 2;
}
}  // namespace TypeProto
namespace TensorShapeProto {
inline constexpr int dim = 1;
namespace Dimension {
inline constexpr int dim_value = 1, dim_param = 2;
}
}  // namespace TensorShapeProto

}  // namespace lockstep::onnx
