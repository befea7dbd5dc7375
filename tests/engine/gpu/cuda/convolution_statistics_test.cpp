// Whether cuDNN computes a convolution and the sums of its output for a norm in one kernel, asked
// for a described H200. Shows why the engine computes statistics in a kernel of its own.
#include "described_gpus.hpp"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

namespace {

/// (N, C, H, W) in the order (N, H, W, C)
void set_extents(Tensor_attributes& tensor, fe::DataType_t type, std::int64_t n, std::int64_t c,
                 std::int64_t size) {
  tensor.set_data_type(type)
      .set_dim({n, c, size, size})
      .set_stride({size * size * c, 1, size * c, c});
}

/// Number of precompiled engines for a convolution of ResNet-50 and its output's sums.
std::int64_t engines_with_statistics(fe::DataType_t type) {
  fe::graph::Graph graph;
  graph.set_io_data_type(type)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const std::string device = lockstep::gpu::cuda::describe(lockstep::gpu::cuda::h200);
  auto properties = std::make_shared<fe::DeviceProperties>();
  BOOST_REQUIRE(properties->deserialize({device.begin(), device.end()}).is_good());
  graph.set_device_properties(properties);
  Tensor_attributes x;
  set_extents(x, type, 256, 64, 56);
  Tensor_attributes weights;
  set_extents(weights, type, 64, 64, 3);
  auto y = graph.conv_fprop(graph.tensor(x), graph.tensor(weights),
                            fe::graph::Conv_fprop_attributes()
                                .set_padding({1, 1})
                                .set_stride({1, 1})
                                .set_dilation({1, 1})
                                .set_compute_data_type(fe::DataType_t::FLOAT));
  set_extents(*y, type, 256, 64, 56);
  y->set_output(true);
  for (const auto& sums : graph.genstats(
           y, fe::graph::Genstats_attributes().set_compute_data_type(fe::DataType_t::FLOAT))) {
    set_extents(*sums, fe::DataType_t::FLOAT, 1, 64, 1);
    sums->set_output(true);
  }
  BOOST_REQUIRE(graph.validate().is_good());
  if (graph.build_operation_graph().is_bad()) return 0;
  const auto offered = graph.create_execution_plans(
      {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK});
  if (offered.is_bad()) return 0;
  graph.deselect_behavior_notes({fe::BehaviorNote_t::RUNTIME_COMPILATION});
  std::int64_t engines = 0;
  for (std::int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
    if (graph.build_plan_at_index(i).is_good()) ++engines;
  }
  return engines;
}

}  // namespace

BOOST_AUTO_TEST_CASE(convolutions_have_statistics_in_fp16_but_not_in_bf16) {
  const std::int64_t fp16 = engines_with_statistics(fe::DataType_t::HALF);
  const std::int64_t bf16 = engines_with_statistics(fe::DataType_t::BFLOAT16);
  fmt::print("cuDNN {}: {} plans in fp16, {} in bf16\n", cudnnGetVersion(), fp16, bf16);
  BOOST_TEST(fp16 > 0);
  // If this fails, a newer cuDNN makes it worth another look.
  BOOST_TEST(bf16 == 0);
}
