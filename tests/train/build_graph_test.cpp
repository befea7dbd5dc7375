#include "build_graph.hpp"

#include "core/refusal.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;

namespace {

/// Of a program's own model, whose loss has its own smoothing.
RunPlan plan_of(double label_smoothing) {
  static const bool added = [] {
    add_model({"smooth", [](const ModelOptions& options) {
                 Graph graph("smooth", options.image.shape());
                 const ValueId x = graph.flatten(graph.input());
                 graph.softmax_cross_entropy(
                     graph.linear(x, {.name = "fc", .out_features = options.classes}),
                     {.label_smoothing = 0.1});
                 return graph;
               }});
    return true;
  }();
  static_cast<void>(added);
  RunPlan plan;
  plan.config.model = "smooth";
  plan.model.image = {.channels = 1, .height = 2, .width = 2};
  plan.model.classes = 3;
  plan.model.label_smoothing = plan.config.label_smoothing = label_smoothing;
  return plan;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_must_end_in_the_loss_of_the_options) {
  const auto refused = [](const RunPlan& plan) {
    return test::refusal([&] { static_cast<void>(build_graph(plan)); });
  };
  const std::string smoothing = refused(plan_of(0));
  BOOST_TEST(test::contains(smoothing, "--label-smoothing 0 "));
  BOOST_TEST(test::contains(smoothing, "give --label-smoothing 0.1 and --bce-target-threshold 0"));
  BOOST_TEST(refused(plan_of(0.1)) == "nothing was refused");

  RunPlan other = plan_of(0.1);
  other.config.loss = "bce";
  BOOST_TEST(test::contains(refused(other), "give --loss cross-entropy"));
  RunPlan dropping = plan_of(0.1);
  dropping.config.stochastic_depth = 0.2;
  BOOST_TEST(test::contains(refused(dropping), "--stochastic-depth 0.2 does not go with smooth"));
}
