#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;

namespace {

/// Keeps a list of the requests in flight. One start fails, although its collective continues.
class FailingStart final : public ForwardingCommunicator {
 public:
  explicit FailingStart(Communicator& inner, int failing = 0)
      : ForwardingCommunicator(inner), failing_(failing) {}
  [[nodiscard]] std::size_t in_flight() const { return in_flight_.size(); }
  /// Number of requests in flight whose memory exists.
  [[nodiscard]] std::ptrdiff_t with_memory() const {
    return std::ranges::count_if(in_flight_,
                                 [](const InFlight& each) { return !each.owner.expired(); });
  }
  void finish() {
    for (InFlight& each : in_flight_) inner().wait(each.request);
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return started(inner().start_all_reduce_buffer(buffer, op), buffer.owner);
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return started(inner().start_reduce_scatter_buffer(all, mine, op), mine.owner);
  }
  bool test(Request& request) override {
    const int slot = request.slot;
    return inner().test(request) && ended(slot);
  }
  void wait(Request& request) override {
    const int slot = request.slot;
    inner().wait(request);
    ended(slot);
  }

 private:
  struct InFlight {
    Request request;
    std::weak_ptr<const void> owner;
  };
  Request started(const Request& request, const MemoryOwner& owner) {
    if (!request.done()) in_flight_.push_back({.request = request, .owner = owner});
    if (++started_ == failing_) fail(ExitStatus::internal, "a start failed");
    return request;
  }
  bool ended(int slot) {
    std::erase_if(in_flight_, [&](const InFlight& each) { return each.request.slot == slot; });
    return true;
  }

  int failing_;  ///< counts from 1; 0: none
  int started_ = 0;
  std::vector<InFlight> in_flight_;
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

  /// Starts all reductions; the first update fails.
  void step() {
    state->begin_step(StepSync::gradients);
    state->begin_micro_step(true);
    std::size_t unit = 0;
    for (const ArenaUnit& each : engine->layout().units) {
      state->exchange().start_reduction(unit++, each.in(engine->gradients()));
    }
    state->start_tail(std::vector<float>(tail));
    state->exchange().await_reduction(0);
    fail(ExitStatus::internal, "an update failed");
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(requests_in_flight_after_an_error_own_their_memory) {
  for (const int failing_start : {0, 1}) {
    const auto world = make_mpi_communicator();
    FailingStart comm(*world, failing_start);
    auto rig = std::make_unique<Rig>(comm);
    BOOST_CHECK_THROW(rig->step(), Error);
    const std::size_t in_flight = comm.in_flight();
    BOOST_TEST(in_flight > 0U);

    rig.reset();

    BOOST_TEST(comm.with_memory() == static_cast<std::ptrdiff_t>(in_flight));
    comm.finish();
    BOOST_TEST(comm.with_memory() == 0);
  }
}
