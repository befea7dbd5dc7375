#include "../../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "engine/gpu/norms_of_ranks.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// A small ResNet, with a norm that is added to another's and a pool that is computed with one.
struct NormedFixture {
  static constexpr std::int64_t size = 2;
  Graph graph = make_model(
      "resnet18", {.image = {.channels = 3, .height = 16, .width = 16}, .classes = 5, .width = 8});
  std::shared_ptr<Device> device = make_host_device(HostWork::late, HostMemoryGuard::on);
  AlignedBuffer<float> images{size * 3 * 16 * 16};
  AlignedBuffer<std::int32_t> labels{size};
  NormsOfEqualRanks norms;

  explicit NormedFixture(int ranks = 2) : norms(*device, ranks) {
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = std::sin(static_cast<float>(i));
    std::ranges::fill(labels.span(), 1);
  }
  [[nodiscard]] std::unique_ptr<Engine> make(NormExchange* exchange, bool records = true) {
    auto engine = make_device_engine(device, graph, {.norms = exchange, .records = records});
    std::vector<float> parameters(engine->parameters().size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = 0.3F + 0.2F * std::cos(static_cast<float>(i));
    }
    engine->memory().write(parameters, engine->parameters());
    return engine;
  }
  [[nodiscard]] Batch batch() const {
    return {
        .values = images.data(), .targets = {.labels = labels.data()}, .size = size, .pixels = {}};
  }
  /// Loss, gradients and statistics of three steps, which are recorded, if at all, in the second.
  [[nodiscard]] std::vector<float> trained(Engine& engine) {
    const auto program = engine.compile_training(size);
    std::vector<float> result;
    std::vector<float> gradients(engine.gradients().size());
    for (int step = 0; step < 3; ++step) {
      program->forward(batch());
      program->backward({.loss_scale = 1, .accumulate = step > 0});
      result.push_back(static_cast<float>(program->metrics().loss));
      engine.memory().read(engine.gradients(), gradients);
      result.insert(result.end(), gradients.begin(), gradients.end());
    }
    const auto statistics = program->batch_statistics();
    result.insert(result.end(), statistics.begin(), statistics.end());
    return result;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(recorded_steps_with_synchronised_norms_give_the_same_bits) {
  NormedFixture fixture;
  const auto recorded = fixture.make(&fixture.norms);
  const auto queued = fixture.make(&fixture.norms, false);

  BOOST_TEST(recorded->description().ends_with(", CUDA graphs"));
  BOOST_TEST(queued->description().ends_with(", no CUDA graphs"));
  BOOST_TEST((fixture.trained(*recorded) == fixture.trained(*queued)));
}

BOOST_AUTO_TEST_CASE(the_host_does_not_wait_for_sums_of_norms) {
  NormedFixture fixture;
  const auto engine = fixture.make(&fixture.norms);
  const auto program = engine->compile_training(NormedFixture::size);
  constexpr int norms = 20;
  for (int step = 1; step <= 3; ++step) {
    program->forward(fixture.batch());
    program->backward({.loss_scale = 1});
    // A late device works while the host waits, so it has not waited in this step.
    BOOST_TEST(fixture.norms.queued == step * 2 * norms);
    BOOST_TEST(fixture.norms.done == (step - 1) * 2 * norms);
    (void)program->metrics();
    fixture.device->synchronize();
  }
}

BOOST_AUTO_TEST_CASE(the_wait_for_synchronised_norms_ends_if_a_rank_is_lost) {
  NormedFixture fixture;
  const auto engine = fixture.make(&fixture.norms);
  const auto program = engine->compile_training(NormedFixture::size);
  program->forward(fixture.batch());
  (void)program->metrics();
  BOOST_TEST(fixture.norms.awaits == 1);

  program->forward(fixture.batch());
  fixture.norms.peer_is_lost = true;
  BOOST_CHECK_EXCEPTION((void)program->metrics(), Error, [](const Error& error) {
    return std::string(error.what()) == "rank 1 was lost";
  });
}

BOOST_AUTO_TEST_CASE(a_program_waits_at_its_end_for_the_ranks_of_a_forward_that_nobody_uses) {
  for (const bool is_lost : {false, true}) {
    NormedFixture fixture;
    const auto engine = fixture.make(&fixture.norms);
    auto program = engine->compile_training(NormedFixture::size);
    program->forward(fixture.batch());
    fixture.norms.peer_is_lost = is_lost;

    program.reset();

    BOOST_TEST(fixture.norms.awaits == 1);
    // What is left ends before the memory that it uses.
    BOOST_TEST(fixture.norms.done == fixture.norms.queued);
  }
}

BOOST_AUTO_TEST_CASE(norms_over_equal_ranks_have_the_statistics_of_one) {
  NormedFixture fixture(4);
  const auto synchronised = fixture.make(&fixture.norms);
  const auto local = fixture.make(nullptr);
  const std::vector<float> expected = fixture.trained(*local);
  const std::vector<float> found = fixture.trained(*synchronised);
  BOOST_TEST_REQUIRE(found.size() == expected.size());

  // The unbiased variance is over four times as many values: n / (n - 1) differs.
  const std::size_t statistics = synchronised->running_statistics().size();
  double difference = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < found.size() - statistics; ++i) {
    difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
    magnitude += std::pow(static_cast<double>(expected[i]), 2);
  }
  BOOST_TEST(std::sqrt(difference / magnitude) < 1e-4);
  // The last norm has 8 values a channel here, and 32 over ranks.
  const float biased = expected.back() * 7 / 8;
  BOOST_TEST(found.back() == biased * 32 / 31, boost::test_tools::tolerance(1e-4F));
}

BOOST_AUTO_TEST_CASE(synchronised_norms_are_fused_like_others) {
  NormedFixture fixture;
  const auto names = [&](NormExchange* exchange) {
    std::vector<std::string> found;
    for (StepTime& step : fixture.make(exchange)
                              ->compile_training(NormedFixture::size)
                              ->time_steps(fixture.batch())) {
      const bool over_ranks =
          step.name.find("over ranks") != std::string::npos || step.name.starts_with("share of ");
      if (step.name.starts_with("sums of ")) step.name.replace(0, 4, "statistics");
      if (!over_ranks) found.push_back(std::move(step.name));
    }
    return found;
  };
  BOOST_TEST((names(&fixture.norms) == names(nullptr)));
}
