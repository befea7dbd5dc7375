#include "lockstep/parallel/replica_averager.hpp"

#include <boost/test/unit_test.hpp>

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"

#include <memory>
#include <string>

using namespace lockstep;

namespace {

/// Records the order of calls.
class Recorder final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::string calls;
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    calls += 'r';
    return ForwardingCommunicator::start_all_reduce_buffer(buffer, op);
  }
  void synchronize() override { calls += 's'; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(an_average_ends_when_the_device_has_made_it) {
  const auto self = make_self_communicator();
  Recorder comm(*self);
  const auto engine = make_cpu_engine(
      make_model("mlp", {.image = {.channels = 3, .height = 4, .width = 4}, .classes = 5}),
      {.threads = 1});
  const auto optimizer = make_optimizer({}, engine->layout(), [](std::span<double>) {});
  ReplicaAverager averager(*engine, comm, *optimizer,
                           {.averages_slots = true, .bucket_bytes = 1 << 20});

  averager.average();

  // A failure in the collectives would otherwise show only in the next step's waits.
  BOOST_TEST(comm.calls.find('s') == comm.calls.size() - 1, comm.calls);
}
