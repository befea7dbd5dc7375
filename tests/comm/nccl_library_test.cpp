#include "comm/communicator_suite.hpp"
#include "comm/groups_rig.hpp"
#include "comm/tested_nccl.hpp"
#include "comm/uploading_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

/// The communicators of a rank over all ranks, and with two ranks or more over groups.
struct Rig {
  explicit Rig(bool deterministic = true) : sets(sets_of(rendezvous, usual_size())) {
    if (rendezvous.size() == 1) sets.resize(1);
    make(deterministic);
  }
  /// Three communicators over all ranks.
  enum class Over { all_ranks };
  explicit Rig(Over /*all_ranks*/) : sets(3, sets_of(rendezvous, 1).front()) { make(true); }
  void make(bool deterministic) {
    nccl = tested_nccl(sets);
    BOOST_TEST_REQUIRE((nccl->stream_create(&compute) == CudaResult::success));
    comms = make_nccl_communicators(
        *nccl, rendezvous, compute, sets,
        {.settings = nccl_settings(nccl->version(), deterministic, nccl_variables()),
         .start_limit = 120s,
         .wait_limit = 120s});
  }
  [[nodiscard]] UploadingCommunicator uploading(std::size_t which = 0) const {
    return {*nccl, *comms[which], compute};
  }
  Rendezvous rendezvous;
  std::vector<std::vector<int>> sets;
  std::unique_ptr<NcclApi> nccl;
  CudaStream compute = nullptr;
  std::vector<std::unique_ptr<DeviceCommunicator>> comms;
};

/// Memory of NCCL, as arenas have it.
std::shared_ptr<void> allocate(NcclApi& nccl, std::size_t bytes) {
  void* memory = nullptr;
  BOOST_TEST_REQUIRE((nccl.mem_alloc(&memory, bytes) == NcclResult::success));
  return {memory, [&nccl](void* released) { static_cast<void>(nccl.mem_free(released)); }};
}

/// Values whose sum depends on the order in which they are added.
std::vector<float> awkward_values(std::size_t count, int rank) {
  std::vector<float> values(count);
  std::uint32_t state = 2463534242U + static_cast<std::uint32_t>(rank);
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state)) / 65536.0F / 3.0F;
  }
  return values;
}

/// Sums values in registered memory many times, and returns the first sums; all others are equal.
std::vector<float> check_equal_bits(const Rig& rig) {
  constexpr std::size_t count = 100003;
  constexpr std::size_t bytes = count * sizeof(float);
  const std::shared_ptr<void> arena = allocate(*rig.nccl, bytes);
  rig.comms[0]->register_memory(
      {.bytes = {static_cast<std::byte*>(arena.get()), bytes}, .owner = arena, .symmetric = true});
  const std::vector<float> values = awkward_values(count, rig.rendezvous.rank());
  std::vector<float> first;
  for (int i = 0; i < 10; ++i) {
    std::vector<float> sums(count);
    BOOST_TEST_REQUIRE((rig.nccl->copy_to_device(arena.get(), values.data(), bytes, rig.compute) ==
                        CudaResult::success));
    rig.comms[0]->all_reduce_buffer({arena.get(), count, ElementType::f32}, ReduceOp::sum);
    BOOST_TEST_REQUIRE((rig.nccl->copy_to_host(sums.data(), arena.get(), bytes, rig.compute) ==
                        CudaResult::success));
    rig.comms[0]->synchronize();
    if (i == 0) first = sums;
    BOOST_TEST((sums == first));
  }
  return first;
}

}  // namespace

BOOST_AUTO_TEST_CASE(communicators_over_all_ranks_and_over_groups_pass_the_suite) {
  const Rig rig;
  for (std::size_t i = 0; i < rig.comms.size(); ++i) {
    UploadingCommunicator host_side = rig.uploading(i);
    check_communicator(host_side, {0, 1, 3, 1000, 10003});
    check_many_requests(host_side);
  }
}

BOOST_AUTO_TEST_CASE(collectives_of_several_communicators_run_in_the_order_of_their_starts) {
  const Rig rig(Rig::Over::all_ranks);
  UploadingCommunicator one = rig.uploading(0);
  UploadingCommunicator other = rig.uploading(1);
  UploadingCommunicator third = rig.uploading(2);

  check_requests_of_several(one, other, third);
}

BOOST_AUTO_TEST_CASE(deterministic_sums_have_the_same_bits_in_each_call_and_communicator) {
  std::vector<float> before;
  for (int start = 0; start < 2; ++start) {
    const Rig rig;

    const std::vector<float> sums = check_equal_bits(rig);

    if (start > 0) BOOST_TEST((sums == before));
    before = sums;
  }
}

BOOST_AUTO_TEST_CASE(memory_is_registered_as_windows_where_nccl_has_them) {
  const Rig rig(false);
  constexpr std::size_t count = 4096;
  const std::shared_ptr<void> arena = allocate(*rig.nccl, count * sizeof(float));
  rig.comms[0]->register_memory(
      {.bytes = {static_cast<std::byte*>(arena.get()), count * sizeof(float)},
       .owner = arena,
       .symmetric = true});
  const std::vector<float> ones(count, 1.0F);
  std::vector<float> sums(count);

  static_cast<void>(
      rig.nccl->copy_to_device(arena.get(), ones.data(), count * sizeof(float), rig.compute));
  rig.comms[0]->all_reduce_buffer({arena.get(), count, ElementType::f32}, ReduceOp::sum);
  static_cast<void>(
      rig.nccl->copy_to_host(sums.data(), arena.get(), count * sizeof(float), rig.compute));
  rig.comms[0]->synchronize();

  BOOST_TEST((sums == std::vector<float>(count, static_cast<float>(rig.rendezvous.size()))));
}

BOOST_AUTO_TEST_CASE(an_exception_aborts_all_communicators_without_waiting) {
  const auto fail_on_one_rank = [] {
    const Rig rig;
    throw std::runtime_error("bad sample");
  };

  BOOST_CHECK_THROW(fail_on_one_rank(), std::runtime_error);
}
