#include <boost/test/unit_test.hpp>

#include "../../src/engine/batch_statistics.hpp"
#include "lockstep/models/models.hpp"

#include <limits>
#include <vector>

using namespace lockstep;

namespace {

Graph network() {
  return make_model("mini-resnet", {.image = {.channels = 3, .height = 8, .width = 8},
                                    .classes = 10,
                                    .width = 4,
                                    .zero_init_residual = false,
                                    .label_smoothing = 0});
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_statistic_that_is_not_finite_is_found) {
  const Graph graph = network();
  BatchStatistics statistics(graph, 2);
  std::vector<float> block(statistics.block_size(), 1.0F);
  BOOST_REQUIRE(graph.statistics().size() > 4U);
  for (std::size_t i = 0; i < graph.statistics().size(); ++i) {
    float& value = block[statistics.offset_of(static_cast<StatisticId>(i))];
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      value = bad;
      statistics.publish(block);
      BOOST_TEST(!statistics.finite(), "statistic " << i << " is " << bad);
    }
    value = 1.0F;
    statistics.publish(block);
    BOOST_TEST(statistics.finite());
  }
}

BOOST_AUTO_TEST_CASE(published_variances_are_unbiased) {
  const Graph graph = network();
  BatchStatistics statistics(graph, 2);
  const std::vector<float> block(statistics.block_size(), 1.0F);
  const Node& norm = graph.nodes()[static_cast<std::size_t>(2)];
  BOOST_REQUIRE(std::holds_alternative<BatchNorm>(norm.op));

  statistics.publish(block);
  const std::size_t channels = static_cast<std::size_t>(norm.output[0]);
  const double elements = 2.0 * 8 * 8;
  BOOST_TEST(statistics.concatenated()[0] == 1.0F);
  BOOST_TEST(statistics.concatenated()[channels] == static_cast<float>(elements / (elements - 1)));

  // As synchronised batch norm sets it, for all ranks' samples.
  statistics.set_elements(norm.statistics[1], 5);
  statistics.publish(block);
  BOOST_TEST(statistics.concatenated()[channels] == 1.25F);
}
