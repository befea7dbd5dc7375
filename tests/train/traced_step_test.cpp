#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/run/run_trace.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/traced_communicator.hpp"
#include "train_rig.hpp"

#include <map>
#include <string>
#include <vector>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

constexpr int warm_up = 3;
constexpr int steps = 3;

Rig::Options options_of(ShardMode mode, TraceRecorder* trace) {
  return {.global_batch = 24, .accumulate = 2, .bucket_bytes = 20e3, .shard = mode, .trace = trace};
}

long allocations(Rig& rig) {
  const long before = test::allocation_count();
  for (int step = 0; step < steps; ++step) rig.run();
  return test::allocation_count() - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_traced_step_gives_the_same_bits_and_allocates_nothing_more) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::full}) {
    Rig plain(*world, options_of(mode, nullptr));
    TraceRecorder recorder(4096);
    TracedCommunicator comm(*world, recorder);
    Rig traced(comm, options_of(mode, &recorder));
    for (int step = 0; step < warm_up; ++step) {
      plain.run();
      traced.run();
    }
    const long expected = allocations(plain);
    recorder.start();
    BOOST_TEST(allocations(traced) == expected);
    recorder.stop();
    BOOST_TEST((traced.all_parameters() == plain.all_parameters()));
  }
}

BOOST_AUTO_TEST_CASE(the_phases_fill_the_step_without_gaps) {
  TraceRecorder recorder(4096);
  TracedCommunicator comm(*world, recorder);
  Rig rig(comm, options_of(ShardMode::none, &recorder));
  rig.run();
  recorder.start();
  std::map<std::string, double> seconds;
  for (int step = 0; step < steps; ++step) {
    const PhaseTimes times = rig.run().times;
    seconds["data"] += times.data;
    seconds["forward"] += times.forward;
    seconds["backward"] += times.backward;
    seconds["reduction wait"] += times.communication;
    seconds["update"] += times.optimizer;
  }
  recorder.stop();

  const auto all_steps = recorder.row(TraceRows::steps).content().events;
  const auto phases = recorder.row(TraceRows::phases).content().events;
  BOOST_TEST_REQUIRE(all_steps.size() == static_cast<std::size_t>(steps));
  std::size_t phase = 0;
  std::map<std::string, double> drawn;
  for (const TraceEvent& step : all_steps) {
    BOOST_TEST_REQUIRE(phases.at(phase).begin == step.begin);
    for (std::int64_t at = step.begin; at < step.end; ++phase) {
      BOOST_TEST_REQUIRE(phases.at(phase).begin == at);
      BOOST_TEST(phases[phase].arguments[0].value == step.arguments[0].value);
      at = phases[phase].end;
      BOOST_TEST_REQUIRE(at <= step.end);
      drawn[phases[phase].name] += 1e-9 * static_cast<double>(at - phases[phase].begin);
    }
    // Phases of zero length may follow at the end of the step.
    while (phase < phases.size() && phases[phase].begin == step.end) ++phase;
  }
  BOOST_TEST(phase == phases.size());
  for (const auto& [name, expected] : seconds) {
    BOOST_TEST_CONTEXT(name)
    BOOST_TEST(drawn[name] == expected, boost::test_tools::tolerance(1e-6));
  }
  BOOST_TEST(drawn.size() == seconds.size());
}

BOOST_AUTO_TEST_CASE(buckets_start_during_backward) {
  TraceRecorder recorder(4096);
  TracedCommunicator comm(*world, recorder);
  Rig rig(comm, options_of(ShardMode::none, &recorder));
  recorder.start();
  rig.run();
  recorder.stop();

  const auto phases = recorder.row(TraceRows::phases).content().events;
  const auto under_way = recorder.row(TracedCommunicator::under_way_row).content().events;
  BOOST_TEST_REQUIRE(under_way.size() == rig.state().step_end().units);
  BOOST_TEST_REQUIRE(under_way.size() > 2U);
  std::int64_t bytes = 0;
  for (const TraceEvent& event : under_way) bytes += event.arguments[1].value;
  BOOST_TEST(bytes == static_cast<std::int64_t>(rig.engine().gradients().size_bytes()));
  const auto last_backward = std::ranges::find_if(phases, [](const TraceEvent& event) {
    return event.name == std::string("backward") && event.arguments[1].value == 1;
  });
  BOOST_TEST_REQUIRE((last_backward != phases.end()));
  // All but the last bucket, which waits for the tail.
  for (std::size_t i = 0; i + 1 < under_way.size(); ++i) {
    BOOST_TEST(under_way[i].begin > last_backward->begin);
    BOOST_TEST(under_way[i].begin < last_backward->end);
  }
  BOOST_TEST(under_way.back().begin >= last_backward->end);
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
