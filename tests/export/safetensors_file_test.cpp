#include <boost/test/unit_test.hpp>

#include "export/small_model.hpp"
#include "io/byte_text.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/export/formats.hpp"

#include <cstring>

using namespace lockstep;
using test::hex;
using test::joined;

namespace {

Graph norm_and_linear() {
  Graph graph("tiny", {1, 2, 1});
  const ValueId x = graph.batch_norm(graph.input(), {.name = "bn"});
  graph.softmax_cross_entropy(graph.linear(graph.flatten(x), {.name = "fc", .out_features = 1}),
                              {});
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_is_the_length_of_the_header_the_header_and_the_tensors) {
  TrainedModel model = test::with_values(norm_and_linear());
  model.mean = {0.485F};
  model.std = {0.25F};
  model.class_names = {"a \"cat\""};
  model.step = 258;
  model.epoch = 2;
  model.weights = "ema";
  model.resize = 232;
  model.interpolation = "bicubic";

  const std::string bytes = joined(safetensors_file(model));

  std::string header =
      R"({"__metadata__":{"format":"pt","producer":"lockstep )" + version() +
      R"(","model":"tiny","input":"[1, 2, 1]","classes":"1","step":"258","epoch":"2",)"
      R"("weights":"ema","mean":"[0.485]","std":"[0.25]","resize":"232",)"
      R"("interpolation":"bicubic","class_names":"[\"a \\\"cat\\\"\"]"},)"
      R"("bn.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("bn.weight":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
      R"("bn.bias":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
      R"("bn.running_mean":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
      R"("bn.running_var":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},)"
      R"("fc.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[24,32]},)"
      R"("fc.bias":{"dtype":"F32","shape":[1],"data_offsets":[32,36]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  BOOST_TEST(length == header.size());
  BOOST_TEST(bytes.substr(8, length) == header);
  // 258, then 0.5, 0.75, the statistics 1.75 and 2, and 1, 1.25, 1.5.
  BOOST_TEST(hex(bytes.substr(8 + length)) ==
             "02 01 00 00 00 00 00 00 00 00 00 3f 00 00 40 3f 00 00 e0 3f 00 00 00 40 "
             "00 00 80 3f 00 00 a0 3f 00 00 c0 3f");
}

BOOST_AUTO_TEST_CASE(what_is_unknown_is_not_in_the_metadata) {
  const TrainedModel model = test::with_values(norm_and_linear());

  const std::string bytes = joined(safetensors_file(model));

  for (const char* name :
       {R"("step")", R"("epoch")", R"("mean")", R"("std")", R"("class_names")"}) {
    BOOST_TEST(bytes.find(name) == std::string::npos, name);
  }
}
