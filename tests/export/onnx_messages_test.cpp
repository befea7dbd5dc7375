#include <boost/test/unit_test.hpp>

#include "export/onnx_messages.hpp"
#include "io/byte_text.hpp"

#include <array>
#include <span>

using namespace lockstep;
using test::hex;
using test::joined;

// Field numbers and types: onnx.proto of ONNX 1.12.
BOOST_AUTO_TEST_CASE(attributes_name_their_type) {
  BOOST_TEST(hex(onnx::attribute("a", std::int64_t{32})) == "0a 01 61 18 20 a0 01 02");
  BOOST_TEST(hex(onnx::attribute("e", 1.0F)) == "0a 01 65 15 00 00 80 3f a0 01 01");
  BOOST_TEST(hex(onnx::attribute("k", {3, 7})) == "0a 01 6b 40 03 40 07 a0 01 07");
}

BOOST_AUTO_TEST_CASE(a_node_lists_inputs_output_name_op_and_attributes) {
  const std::string message = onnx::node(
      {.name = "n", .op_type = "Add", .inputs = {"x", "y"}, .output = "z", .attributes = {"!"}});

  BOOST_TEST(hex(message) == "0a 01 78 0a 01 79 12 01 7a 1a 01 6e 22 03 41 64 64 2a 01 21");
}

BOOST_AUTO_TEST_CASE(a_tensor_ends_with_its_values) {
  const std::array values{1.0F, -2.0F};

  const FilePart part = onnx::tensor("w", {2, 1}, {.view = std::as_bytes(std::span(values))});

  BOOST_TEST(hex(joined({part})) == "08 02 08 01 10 01 42 01 77 4a 08 00 00 80 3f 00 00 00 c0");
  BOOST_TEST(part.view.size() == 8u);
}

BOOST_AUTO_TEST_CASE(the_batch_of_a_value_is_any) {
  const std::string message = onnx::value_info("v", {3}, "d");

  // TypeProto.tensor_type: elem_type FLOAT, shape of dim_param "batch" and dim_value 3.
  BOOST_TEST(hex(message) ==
             "0a 01 76 12 13 0a 11 08 01 12 0d 0a 07 12 05 62 61 74 63 68 0a 02 08 03 1a 01 64");
}
