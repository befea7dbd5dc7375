#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/health/require_memory.hpp"
#include "lockstep/models/models.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

using namespace lockstep;
using lockstep::test::contains;
using lockstep::test::refusal;

namespace {

const Graph& graph() {
  static const Graph wide = make_model("mlp", {.image = {.channels = 3, .height = 16, .width = 16},
                                               .classes = 10,
                                               .width = 2048,
                                               .zero_init_residual = false,
                                               .label_smoothing = 0});
  return wide;
}

Config adam(ShardMode mode) {
  Config config;
  config.optimizer = OptimizerKind::adam;
  config.shard = mode;
  return config;
}

/// The size of the largest parameter, over that of all.
double largest() {
  std::int64_t values = 0;
  std::int64_t most = 0;
  for (const Parameter& parameter : graph().parameters()) {
    values += parameter.shape.elements();
    most = std::max(most, parameter.shape.elements());
  }
  return static_cast<double>(most) / static_cast<double>(values);
}

/// A limit of `multiple` times the size of the parameters; padding adds below 1%.
MemoryLimit limit_of(double multiple, int processes, std::string source = "the node") {
  std::int64_t values = 0;
  for (const Parameter& parameter : graph().parameters()) values += parameter.shape.elements();
  return {
      .bytes = static_cast<std::uint64_t>(multiple * sizeof(float) * static_cast<double>(values)),
      .source = std::move(source),
      .processes = processes};
}

std::string refused(const Config& config, int ranks, const std::vector<MemoryLimit>& limits) {
  return refusal([&] { require_memory(config, graph(), ranks, limits); });
}

const std::string fits = "nothing was refused";

}  // namespace

BOOST_AUTO_TEST_CASE(a_limit_per_process_includes_the_copy_to_save) {
  // In multiples of the parameters' size, the state is 4 (parameters, gradients and two slots), and
  // its copy without gradients is 3; to this a save adds the tensor that it writes.
  const Config config = adam(ShardMode::none);
  BOOST_TEST(refused(config, 64, {limit_of(7.1 + largest(), 1, "ulimit -v")}) == fits);
  const std::string text = refused(config, 64, {limit_of(6.9 + largest(), 1, "ulimit -v")});
  BOOST_TEST(contains(text, "with --shard none"), text);
  BOOST_TEST(contains(text, "ulimit -v"), text);
  BOOST_TEST(contains(text, " copy to save"), text);
  BOOST_TEST(contains(text, "use --shard optimizer"), text);
}

BOOST_AUTO_TEST_CASE(ranks_of_a_node_make_one_copy_of_replicated_state) {
  const Config config = adam(ShardMode::none);
  BOOST_TEST(refused(config, 64, {limit_of(4.1, 64)}) == fits);
  BOOST_TEST(refused(config, 64, {limit_of(4.8 + largest() / 4, 4)}) == fits);
  for (const MemoryLimit& limit : {limit_of(4.0, 64), limit_of(4.7 + largest() / 4, 4)}) {
    const std::string text = refused(config, 64, {limit});
    BOOST_TEST(contains(text, "as its share of copies to save"), text);
  }
}

BOOST_AUTO_TEST_CASE(rank_0_copies_the_whole_of_a_sharded_state) {
  // Each rank needs a quarter of the state, 4, and rank 0 the whole copy, 3, and a tensor.
  const Config full = adam(ShardMode::full);
  BOOST_TEST(contains(refused(full, 4, {limit_of(1.74 + largest() / 4, 4)}), "with --shard full"));
  BOOST_TEST(refused(full, 4, {limit_of(1.8 + largest() / 4, 4)}) == fits);
  BOOST_TEST(contains(refused(full, 4, {limit_of(3.9 + largest(), 1)}), "with --shard full"));
  BOOST_TEST(refused(full, 4, {limit_of(4.1 + largest(), 1)}) == fits);
  // In groups of two ranks, each rank keeps 2.
  const Config hybrid = adam(ShardMode::hybrid);
  BOOST_TEST(
      contains(refused(hybrid, 2, {limit_of(2.74 + largest() / 4, 4)}), "with --shard hybrid"));
  BOOST_TEST(refused(hybrid, 2, {limit_of(2.8 + largest() / 4, 4)}) == fits);
}

BOOST_AUTO_TEST_CASE(activations_count_in_addition_to_the_state) {
  // The state is 4, its copy 3 and a tensor, and the activations are 2.
  const Config config = adam(ShardMode::none);
  const ActivationNeeds needs{.bytes = limit_of(2, 1).bytes, .samples = 32};
  const auto refused_with = [&](const Config& asked, const MemoryLimit& limit) {
    return refusal([&] { require_activations(asked, graph(), 64, {&limit, 1}, needs); });
  };
  BOOST_TEST(refused_with(config, limit_of(9.1 + largest(), 1)) == fits);
  const std::string text = refused_with(config, limit_of(8.9 + largest(), 1, "the control group"));
  BOOST_TEST(contains(text, "activations of 32 samples in fp32"), text);
  BOOST_TEST(contains(text, "the control group"), text);
  BOOST_TEST(contains(text, "lower --batch-size"), text);
  BOOST_TEST(contains(text, "--precision bf16"), text);
  Config in_bf16 = config;
  in_bf16.precision = Precision::bf16;
  BOOST_TEST(!contains(refused_with(in_bf16, limit_of(8.9 + largest(), 1)), "--precision"));
  BOOST_TEST(refusal([&] { require_activations(config, graph(), 64, {}, needs); }) == fits);
}

BOOST_AUTO_TEST_CASE(every_limit_is_checked_for_the_request_and_the_advice) {
  const Config config = adam(ShardMode::none);
  // The smaller limit suffices; the one per process does not, because it includes rank 0's whole
  // copy.
  const std::string text =
      refused(config, 4, {limit_of(4.9 + largest() / 4, 4), limit_of(5, 1, "ulimit -v")});
  BOOST_TEST(contains(text, "ulimit -v"), text);
  const std::string neither = refused(config, 4, {limit_of(0.1, 4), limit_of(6, 1, "ulimit -v")});
  BOOST_TEST(contains(neither, "use more ranks"), neither);
  BOOST_TEST(refused(config, 4, {}) == fits);
}
