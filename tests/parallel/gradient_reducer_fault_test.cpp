#include "../../src/parallel/gradient_reducer.hpp"

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;

namespace {

/// Makes one MPI call fail on one rank, although the operation itself continues.
struct Fault {
  enum class Call { none, start, test } call = Call::none;
  int when = 0;
  int made = 0;
};
Fault fault;
std::vector<MPI_Request> in_flight;

int result_of(Fault::Call call, int result) {
  return fault.call == call && ++fault.made == fault.when ? MPI_ERR_OTHER : result;
}

}  // namespace

extern "C" {

int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  const int result = PMPI_Iallreduce(from, to, count, type, op, comm, request);
  in_flight.push_back(*request);
  return result_of(Fault::Call::start, result);
}

/// Never reports completion, so that requests stay in flight until the test completes them.
int MPI_Testall(int /*count*/, MPI_Request /*requests*/[], int* done, MPI_Status /*statuses*/[]) {
  *done = 0;
  return result_of(Fault::Call::test, MPI_SUCCESS);
}

}  // extern "C"

namespace {

constexpr std::size_t tail = 24;

/// Holds the owners of all buffers that are reduced.
class OwnerRecorder final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    owners_.insert(buffer.owner);
    return inner().start_all_reduce_buffer(buffer, op);
  }
  [[nodiscard]] const std::set<MemoryOwner>& owners() const noexcept { return owners_; }

 private:
  std::set<MemoryOwner> owners_;
};

struct Rig {
  Graph graph = make_model("mlp", {.image = {.channels = 3, .height = 4, .width = 4},
                                   .classes = 10,
                                   .width = 8,
                                   .zero_init_residual = false,
                                   .label_smoothing = 0});
  std::unique_ptr<Engine> engine = make_cpu_engine(graph, {.threads = 1, .tail_size = tail});
  std::unique_ptr<GradientReducer> reducer;

  Rig(Communicator& comm, ElementType dtype)
      : reducer(std::make_unique<GradientReducer>(
            comm, engine->gradients(),
            plan_buckets(
                engine->layout(), tail, 0,
                dtype == ElementType::f32 ? TailPlace::last_bucket : TailPlace::separate_bucket),
            GradientReducer::Dtype{.type = dtype, .gradients = engine->layout().size()},
            engine.get())) {}

  /// Runs backward until `buckets` reductions are in flight.
  void backward(std::size_t buckets) {
    reducer->begin();
    for (std::size_t i = 1; i <= buckets; ++i) {
      reducer->start_until(i);
      reducer->progress();
    }
  }
};

/// Fails on rank 1 during backward; all ranks then destroy the engine and the communicator. Returns
/// whether the memory of the reductions in flight is kept.
bool memory_is_kept(const Fault& on_rank_1, ElementType dtype) {
  constexpr std::size_t buckets = 2;
  std::unique_ptr<Communicator> comm = make_mpi_communicator();
  const int rank = comm->rank();
  OwnerRecorder recorder(*comm);
  auto rig = std::make_unique<Rig>(recorder, dtype);
  BOOST_REQUIRE(rig->reducer->buckets().size() > buckets);
  fault = rank == 1 ? on_rank_1 : Fault{};
  bool failed = false;
  try {
    rig->backward(buckets);
  } catch (const Error&) {
    failed = true;
  }
  fault = {};
  BOOST_TEST(failed == (rank == 1));
  BOOST_TEST(in_flight.size() == buckets);

  rig.reset();
  comm.reset();

  const bool kept = std::ranges::all_of(recorder.owners(),
                                        [](const auto& owner) { return owner.use_count() > 1; });
  PMPI_Waitall(static_cast<int>(in_flight.size()), in_flight.data(), MPI_STATUSES_IGNORE);
  in_flight.clear();
  return kept;
}

}  // namespace

BOOST_AUTO_TEST_CASE(reductions_in_flight_own_their_memory_after_an_error_in_backward) {
  for (const ElementType dtype : {ElementType::f32, ElementType::bf16}) {
    for (const Fault& at : {Fault{.call = Fault::Call::start, .when = 2},
                            Fault{.call = Fault::Call::test, .when = 2}}) {
      BOOST_TEST(memory_is_kept(at, dtype));
    }
  }
}

BOOST_AUTO_TEST_CASE(arenas_are_not_kept_after_a_complete_step) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  auto rig = std::make_unique<Rig>(*comm, ElementType::f32);
  const std::weak_ptr<const void> arenas = rig->engine->arena();
  rig->backward(rig->reducer->buckets().size());
  for (std::size_t i = 0; i < rig->reducer->buckets().size(); ++i) rig->reducer->await(i);
  in_flight.clear();

  rig.reset();

  BOOST_TEST(arenas.expired());
}
