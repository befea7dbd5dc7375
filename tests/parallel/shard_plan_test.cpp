#include <boost/test/unit_test.hpp>

#include "lockstep/models/models.hpp"
#include "lockstep/parallel/shard_plan.hpp"

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

Graph network(const std::string& name) {
  return make_model(name, {.image = {.channels = 3, .height = 32, .width = 32},
                           .classes = 10,
                           .width = 0,
                           .zero_init_residual = false,
                           .label_smoothing = 0});
}

/// The names of each unit's parameters, by unit.
std::map<int, std::vector<std::string>> names_by_unit(const Graph& graph, const ShardUnit& unit) {
  const std::vector<int> unit_of = plan_units(graph, unit);
  std::map<int, std::vector<std::string>> names;
  for (std::size_t id = 0; id < unit_of.size(); ++id) {
    names[unit_of[id]].push_back(graph.parameters()[id].name);
  }
  return names;
}

enum class Marks { none, blocks, stage };

/// Two blocks that begin with a norm, between a convolution and a norm.
Graph encoder(Marks marks) {
  Graph graph("encoder", {3, 4, 4});
  if (marks == Marks::stage) graph.begin_stage();
  ValueId x = graph.conv2d(graph.input(), {.name = "patches", .out_channels = 8, .kernel = 1});
  for (const std::string name : {"encoder.layers.0", "encoder.layers.1"}) {
    if (marks != Marks::none) graph.begin_block();
    x = graph.batch_norm(x, {.name = name + ".ln"});
    x = graph.conv2d(x, {.name = name + ".mlp", .out_channels = 8, .kernel = 1, .bias = true});
  }
  graph.end_blocks();
  graph.batch_norm(x, {.name = "encoder.ln"});
  return graph;
}

/// The arena's layout in an engine: last parameters first.
ArenaLayout layout_of(const Graph& graph, const ShardUnit& unit, int ranks) {
  std::vector<ParameterId> ready(graph.parameters().size());
  std::iota(ready.rbegin(), ready.rend(), ParameterId{0});
  const auto size_of = [&graph](ParameterId id) {
    return static_cast<std::size_t>(
        graph.parameters()[static_cast<std::size_t>(id)].shape.elements());
  };
  return lay_out(graph, ready, size_of,
                 {.unit_of = plan_units(graph, unit),
                  .multiple = arena_alignment * static_cast<std::size_t>(ranks)});
}

}  // namespace

BOOST_AUTO_TEST_CASE(blocks_are_units_and_the_stem_includes_its_norm) {
  const auto units = names_by_unit(network("resnet18"), {});
  BOOST_TEST(units.size() == 10U);  // the stem, eight blocks, the head
  const std::vector<std::string> stem{"conv1.weight", "bn1.weight", "bn1.bias"};
  BOOST_TEST(units.begin()->second == stem, boost::test_tools::per_element());
  for (const std::string& name : units.at(3)) BOOST_TEST(name.starts_with("layer2.0."));
  const std::vector<std::string> head{"fc.weight", "fc.bias"};
  BOOST_TEST(units.rbegin()->second == head, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_deep_stem_is_one_unit) {
  const Graph graph = make_model("resnet50", {.stem = Stem::deep});
  for (const auto by : {ShardUnit::By::block, ShardUnit::By::stage}) {
    const auto units = names_by_unit(graph, {.by = by});
    BOOST_TEST(units.at(0).size() == 9U);  // three convolutions and three norms
    BOOST_TEST(units.at(0).front() == "conv1.0.weight");
    BOOST_TEST(units.at(1).front() == "layer1.0.conv1.weight");
  }
}

BOOST_AUTO_TEST_CASE(blocks_are_those_that_the_model_marks_whatever_its_names) {
  using Units = std::map<int, std::vector<std::string>>;
  const std::vector<std::string> norm{"encoder.ln.weight", "encoder.ln.bias"};
  const auto names = [](const std::string& layer) {
    return std::vector<std::string>{layer + ".ln.weight", layer + ".ln.bias", layer + ".mlp.weight",
                                    layer + ".mlp.bias"};
  };
  const auto joined = [](std::vector<std::string> one, const std::vector<std::string>& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
  };
  const std::vector<std::string> first = names("encoder.layers.0");
  const std::vector<std::string> second = names("encoder.layers.1");

  // A norm that begins a block belongs to the block.
  BOOST_TEST((names_by_unit(encoder(Marks::blocks), {}) ==
              Units{{0, {"patches.weight"}}, {1, first}, {2, joined(second, norm)}}));
  BOOST_TEST((names_by_unit(encoder(Marks::blocks), {.by = ShardUnit::By::stage}) ==
              names_by_unit(encoder(Marks::blocks), {})));
  // Layers of a stage before its blocks are a unit.
  BOOST_TEST((names_by_unit(encoder(Marks::stage), {}) ==
              Units{{0, {"patches.weight"}}, {1, first}, {2, joined(second, norm)}}));
  BOOST_TEST((names_by_unit(encoder(Marks::stage), {.by = ShardUnit::By::stage}) ==
              Units{{0, joined({"patches.weight"}, joined(first, joined(second, norm)))}}));
  // Without marks, each layer is one, with the norm after it.
  for (const auto by : {ShardUnit::By::block, ShardUnit::By::stage}) {
    BOOST_TEST((names_by_unit(encoder(Marks::none), {.by = by}) ==
                Units{{0, joined({"patches.weight"}, {first[0], first[1]})},
                      {1, joined({first[2], first[3]}, {second[0], second[1]})},
                      {2, joined({second[2], second[3]}, norm)}}));
  }
}

BOOST_AUTO_TEST_CASE(adjacent_units_are_merged_last_first_up_to_a_limit) {
  const Graph graph = network("resnet18");
  const std::vector<int> blocks = plan_units(graph, {});
  for (const std::int64_t most :
       {std::int64_t{1}, std::int64_t{3'000'000}, std::int64_t{1} << 40}) {
    const std::vector<int> merged = merge_units(blocks, graph, most);
    std::map<int, std::set<int>> units;
    std::map<int, std::int64_t> values;
    for (std::size_t id = 0; id < blocks.size(); ++id) {
      units[merged[id]].insert(blocks[id]);
      values[merged[id]] += graph.parameters()[id].shape.elements();
    }
    for (const auto& [unit, members] : units) {
      // Merged units are adjacent; a unit above the limit is not merged.
      BOOST_TEST(*members.rbegin() - *members.begin() + 1 == static_cast<int>(members.size()));
      BOOST_TEST((values[unit] <= most || members.size() == 1));
      // With the next unit, which is nearer to the input, it would exceed the limit.
      if (!units.contains(unit + 1)) continue;
      const int next = *units[unit + 1].rbegin();
      BOOST_TEST(next == *members.begin() - 1);
      std::int64_t more = 0;
      for (std::size_t id = 0; id < blocks.size(); ++id) {
        if (blocks[id] == next) more += graph.parameters()[id].shape.elements();
      }
      BOOST_TEST(values[unit] + more > most);
    }
    BOOST_TEST(units.size() == (most == 1 ? 10U : most > 20'000'000 ? 1U : units.size()));
    BOOST_TEST((most != 3'000'000 || (units.size() > 1 && units.size() < 10)));
  }
}

BOOST_AUTO_TEST_CASE(separate_vectors_are_one_unit_after_the_others) {
  const Graph graph = network("resnet18");
  std::vector<ParameterId> ready(graph.parameters().size());
  std::iota(ready.rbegin(), ready.rend(), ParameterId{0});
  const ArenaLayout layout = lay_out(
      graph, ready,
      [&graph](ParameterId id) {
        return static_cast<std::size_t>(
            graph.parameters()[static_cast<std::size_t>(id)].shape.elements());
      },
      {.unit_of = plan_units(graph, {}), .multiple = 4 * arena_alignment, .vectors_apart = true});
  BOOST_TEST(layout.units.size() == 11U);
  for (const ArenaView& view : layout.views) {
    const bool behind = view.offset >= layout.units.back().begin;
    BOOST_TEST(behind == (view.kind != ParameterKind::weight));
  }
  for (const ArenaUnit& unit : layout.units) {
    BOOST_TEST(unit.in_fp32 == (&unit == &layout.units.back()));
    BOOST_TEST(unit.size() % (4 * arena_alignment) == 0U);
  }
  // Each weight counts as filled when it is ready; the vectors, which end the arena, only when the
  // last parameter is ready.
  const std::vector<std::size_t> filled = filled_after_each(layout, ready);
  std::size_t before = 0;
  for (const ParameterId id : ready) {
    const std::size_t now = filled[static_cast<std::size_t>(id)];
    const ArenaView& view = layout.view_of(id);
    BOOST_TEST(now >= before);
    if (view.kind == ParameterKind::weight) BOOST_TEST(now >= view.end());
    if (id != ready.back()) BOOST_TEST(now <= layout.units.back().begin);
    before = now;
  }
  BOOST_TEST(before == layout.size());
}

BOOST_AUTO_TEST_CASE(stages_are_larger_units) {
  const auto units = names_by_unit(network("resnet50"), {.by = ShardUnit::By::stage});
  BOOST_TEST(units.size() == 6U);  // the stem, four stages, the head
}

BOOST_AUTO_TEST_CASE(units_by_size_have_at_least_the_given_parameters) {
  for (const char* name : {"resnet50", "mini-resnet", "mlp"}) {
    const Graph graph = network(name);
    for (const std::int64_t smallest : {1, 1000, 100000, 1 << 30}) {
      const std::vector<int> unit_of =
          plan_units(graph, {.by = ShardUnit::By::size, .smallest = smallest});
      std::map<int, std::int64_t> values;
      for (std::size_t id = 0; id < unit_of.size(); ++id) {
        values[unit_of[id]] += graph.parameters()[id].shape.elements();
      }
      for (const auto& [unit, count] : values) {
        BOOST_TEST(((count >= smallest) || (values.size() == 1)), name << ", unit " << unit);
      }
    }
    BOOST_TEST(names_by_unit(graph, {.by = ShardUnit::By::size, .smallest = 1}).size() >= 3U);
  }
}

BOOST_AUTO_TEST_CASE(the_shards_cover_every_value_once) {
  for (const char* name : {"resnet18", "mini-resnet", "simple-cnn", "mlp"}) {
    const Graph graph = network(name);
    for (const int ranks : {1, 2, 3, 4, 7}) {
      const ArenaLayout whole = layout_of(graph, {}, ranks);
      std::vector<int> owners(whole.size(), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardPlan plan(whole, rank, ranks);
        BOOST_TEST(plan.local().size() * static_cast<std::size_t>(ranks) == whole.size());
        BOOST_TEST_REQUIRE(plan.local().views.size() == whole.views.size());
        for (std::size_t unit = 0; unit < plan.units(); ++unit) {
          const std::size_t begin = plan.begin_in_unsharded(unit);
          for (std::size_t i = 0; i < plan.local().units[unit].size(); ++i) ++owners[begin + i];
        }
        // The rank's shard of each tensor maps to values of that tensor in the whole arena.
        std::size_t unit = 0;
        for (std::size_t i = 0; i < whole.views.size(); ++i) {
          const ArenaView& kept = plan.local().views[i];
          while (whole.views[i].offset >= whole.units[unit].end) ++unit;
          BOOST_TEST(kept.offset % arena_alignment == 0U);
          if (kept.size == 0) continue;
          const std::size_t place =
              plan.begin_in_unsharded(unit) + (kept.offset - plan.local().units[unit].begin);
          BOOST_TEST(place >= whole.views[i].offset);
          BOOST_TEST(place + kept.size <= whole.views[i].end());
        }
      }
      BOOST_TEST((std::set<int>(owners.begin(), owners.end()) == std::set<int>{1}));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_shards_of_a_tensor_add_up_to_its_size) {
  const Graph graph = network("mini-resnet");
  const ArenaLayout whole = layout_of(graph, {.by = ShardUnit::By::size, .smallest = 1}, 4);
  std::vector<std::size_t> kept(whole.views.size(), 0);
  for (int rank = 0; rank < 4; ++rank) {
    const ShardPlan plan(whole, rank, 4);
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] += plan.local().views[i].size;
  }
  for (std::size_t i = 0; i < kept.size(); ++i) BOOST_TEST(kept[i] == whole.views[i].size);
}
