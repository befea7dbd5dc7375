#include "../../src/engine/lowering/graph_builder.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <vector>

using namespace lockstep;

namespace {

struct Tensor {
  int buffer = -1;
};
struct Step {};

class Builder final : public GraphBuilder<Tensor, Step> {
 public:
  using GraphBuilder::GraphBuilder;

 private:
  Tensor make_unit(std::size_t, UnitContent) override { return {}; }
  void clear_gaps(std::size_t, const Tensor&) override {}
  Step exchange_step(std::string, const Tensor&, std::function<void(std::byte*)>, bool) override {
    return {};
  }
};

/// A builder for a list of ops, which keeps the outputs of those that it lowered again.
struct Rig {
  explicit Rig(std::vector<StepOp> ops)
      : graph("empty", {2, 1, 1}),
        arena(graph,
              {.formats = {}, .units = {.holds_parameters = false, .holds_gradients = false}},
              [](std::size_t, ParameterArena::Use) { return nullptr; }),
        steps{.values = std::vector<StepValue>(8), .ops = std::move(ops)},
        builder({.graph = graph, .steps = steps, .arena = arena}, {.training = true}) {
    builder.set_lower_again([this](const StepOp& op) {
      again.push_back(*op.output);
      for (const StepValueId input : op.inputs) static_cast<void>(builder.value(input));
      builder.set_value(*op.output, {.buffer = *op.output});
    });
  }

  Graph graph;
  ParameterArena arena;
  StepGraph steps;
  Builder builder;
  std::vector<StepValueId> again = {};
};

StepOp reads(std::vector<StepValueId> values) {
  return {.kind = StepOp::Kind::gradient, .inputs = std::move(values)};
}
StepOp computes_again(StepValueId from, StepValueId to) {
  return {.kind = StepOp::Kind::recompute, .inputs = {from}, .output = to};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_value_is_overwritable_by_its_last_reader) {
  Rig rig({reads({1}), reads({1})});
  rig.builder.set_value(1, {.buffer = 0});
  rig.builder.begin(0);
  BOOST_TEST(!rig.builder.overwritable(1));
  rig.builder.begin(1);
  BOOST_TEST(rig.builder.overwritable(1));
}

BOOST_AUTO_TEST_CASE(a_value_without_a_buffer_of_the_plan_is_never_overwritable) {
  Rig rig({reads({1})});
  rig.builder.set_value(1, {});
  rig.builder.begin(0);
  BOOST_TEST(!rig.builder.overwritable(1));
}

BOOST_AUTO_TEST_CASE(values_in_one_buffer_are_overwritable_when_all_have_been_read) {
  for (const bool longer_first : {false, true}) {
    Rig rig({reads({1}), reads({2})});
    rig.builder.set_value(longer_first ? 2 : 1, {.buffer = 0});
    rig.builder.set_value(longer_first ? 1 : 2, {.buffer = 0});
    rig.builder.begin(0);
    BOOST_TEST(!rig.builder.overwritable(1));
    rig.builder.begin(1);
    BOOST_TEST(rig.builder.overwritable(2));
  }
}

BOOST_AUTO_TEST_CASE(what_one_op_reads_is_computed_again_only_if_it_asks) {
  for (const bool asks : {false, true}) {
    Rig rig({computes_again(1, 2), reads({2})});
    rig.builder.set_value(1, {.buffer = 1});
    rig.builder.defer(0);
    rig.builder.begin(1);
    BOOST_TEST(rig.again.empty());
    if (asks) BOOST_TEST(rig.builder.value(2).buffer == 2);
    rig.builder.end();
    BOOST_TEST(rig.again.size() == (asks ? 1U : 0U));
  }
}

BOOST_AUTO_TEST_CASE(what_several_ops_read_is_computed_again_before_the_first) {
  Rig rig({computes_again(1, 2), reads({2}), reads({2})});
  rig.builder.set_value(1, {.buffer = 1});
  rig.builder.defer(0);
  rig.builder.begin(1);
  rig.builder.end();
  rig.builder.begin(2);
  BOOST_TEST(rig.builder.value(2).buffer == 2);
  BOOST_TEST(rig.again == std::vector{2}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_chain_is_computed_again_in_its_order) {
  Rig rig({computes_again(1, 2), computes_again(2, 3), reads({3})});
  rig.builder.set_value(1, {.buffer = 1});
  rig.builder.defer(0);
  rig.builder.defer(1);
  rig.builder.begin(2);
  BOOST_TEST(rig.builder.value(3).buffer == 3);
  rig.builder.end();
  BOOST_TEST(rig.again == (std::vector{3, 2}), boost::test_tools::per_element());  // 3 asks for 2
}

BOOST_AUTO_TEST_CASE(what_is_computed_again_may_not_overwrite_what_its_reader_reads_too) {
  Rig rig({computes_again(1, 2), reads({1, 2})});
  rig.builder.set_value(1, {.buffer = 1});
  bool overwrites = true;
  rig.builder.set_lower_again([&](const StepOp& op) {
    overwrites = rig.builder.overwritable(1);
    rig.builder.set_value(*op.output, {.buffer = 2});
  });
  rig.builder.defer(0);
  rig.builder.begin(1);
  BOOST_TEST(rig.builder.value(2).buffer == 2);
  BOOST_TEST(!overwrites);
  BOOST_TEST(rig.builder.overwritable(1));  // the reader itself may
}
