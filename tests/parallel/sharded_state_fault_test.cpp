#define BOOST_TEST_MODULE sharded_state_fault
#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;

namespace {

/// Keeps a list of the requests in flight. One start fails, though its collective goes on.
class FailingStart final : public ForwardingCommunicator {
 public:
  explicit FailingStart(Communicator& inner, int failing = 0)
      : ForwardingCommunicator(inner), failing_(failing) {}
  [[nodiscard]] std::size_t in_flight() const { return in_flight_.size(); }
  void finish() {
    for (Request& request : in_flight_) inner().wait(request);
  }

  bool test(Request& request) override {
    const Request tested = request;
    return inner().test(request) && ended(tested);
  }
  void wait(Request& request) override {
    const Request waited = request;
    inner().wait(request);
    ended(waited);
  }

 private:
  void after_start(CollectiveKind /*kind*/, const Request& request) override {
    if (!request.done()) in_flight_.push_back(request);
    if (++started_ == failing_) fail(ExitStatus::internal, "a start failed");
  }
  bool ended(const Request& request) {
    std::erase_if(in_flight_, [&](const Request& other) { return other.slot == request.slot; });
    return true;
  }

  int failing_;  ///< counts from 1; 0: none
  int started_ = 0;
  std::vector<Request> in_flight_;
};

struct Rig {
  static constexpr std::size_t tail = 24;
  static Config config() {
    Config config;
    config.shard = ShardMode::optimizer;
    return config;
  }

  Graph graph = make_model("mlp", {.image = {.channels = 3, .height = 4, .width = 4},
                                   .classes = 10,
                                   .width = 8,
                                   .zero_init_residual = false,
                                   .label_smoothing = 0});
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ParallelState> state;

  explicit Rig(Communicator& comm)
      : engine(make_cpu_engine(
            graph, {.threads = 1, .units = unit_options(config(), graph, comm.size())})),
        state(make_sharded_state(*engine, {.all = comm, .group_host = comm, .group = comm},
                                 {.tail_size = tail})) {}

  /// Backward, and the reductions, whose first result cannot be used.
  void step() {
    state->begin_step();
    state->begin_micro_step({}).gradients_ready(engine->layout().size());
    state->finish(std::vector<float>(tail),
                  [](const ParameterRange&) { fail(ExitStatus::internal, "an update failed"); });
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(after_a_failed_update_nothing_is_in_flight_in_freed_memory) {
  const auto world = make_mpi_communicator();
  FailingStart comm(*world);
  auto rig = std::make_unique<Rig>(comm);
  const std::weak_ptr<const void> arenas = rig->engine->arena();
  BOOST_CHECK_THROW(rig->step(), Error);
  BOOST_TEST(comm.in_flight() > 0U);

  rig.reset();

  BOOST_TEST(comm.in_flight() == 0U);
  BOOST_TEST(arenas.expired());
}

BOOST_AUTO_TEST_CASE(after_a_failed_start_the_memory_is_kept) {
  const auto world = make_mpi_communicator();
  FailingStart comm(*world, 1);
  auto rig = std::make_unique<Rig>(comm);
  const std::shared_ptr<const void> arenas = rig->engine->arena();
  BOOST_CHECK_THROW(rig->step(), Error);
  BOOST_TEST(comm.in_flight() == 1U);

  rig.reset();

  BOOST_TEST(arenas.use_count() > 1);
  comm.finish();
}
