// A GPU module over a host device, so that the whole program runs its GPU path on a machine without
// a GPU. HOST_MODULE_LATE=1 runs work when it is waited for. HOST_MODULE_SHARED=1 puts all ranks on
// one device. HOST_MODULE_HANG=device:1 or nccl:1 makes rank 1 hang when it opens its device or
// starts NCCL. HOST_MODULE_MARKS=FILE receives the ranges for a profiler, and
// HOST_MODULE_ALGORITHMS=FILE the chosen algorithms. HOST_MODULE_BUS is the PCI bus id of the GPU,
// HOST_MODULE_NCCL the version of NCCL (22809), HOST_MODULE_CAPABILITY the first number of the
// GPU's compute capability. HOST_MODULE_NVLS=FILE receives NCCL_NVLS_ENABLE. HOST_MODULE_GPU: see
// host_streams.hpp.
#include "compute/module_interface.hpp"
#include "engine/gpu/host_device.hpp"
#include "host_streams.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "optim/device/device_optimizer.hpp"

#include <sched.h>
#include <unistd.h>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace {

using namespace lockstep;
using namespace lockstep::gpu;

/// Hangs if HOST_MODULE_HANG names this place and this rank.
void hang_at(const std::string& what) {
  const char* hang = std::getenv("HOST_MODULE_HANG");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  while (hang != nullptr && rank != nullptr && hang == what + ":" + rank) ::pause();
}

std::string bus_id() {
  const char* id = std::getenv("HOST_MODULE_BUS");
  return id == nullptr ? "0000:00:00.0" : id;
}

DriverState probe() {
  DriverState state{.status = DriverState::Status::usable,
                    .driver_version = 13000,
                    .runtime_version = 13000,
                    .devices = 1,
                    .detail = "",
                    .bus_ids = {bus_id()}};
  if (std::getenv("HOST_MODULE_APART") != nullptr) {
    state.devices = 3;
    state.peers = {.pairs = 3, .reaching = 2, .first = 0, .second = 2};
  }
  return state;
}

/// Appends a line to the file that the environment variable `name` names, if it is set.
void note(const char* name, const std::string& line) {
  const char* const path = std::getenv(name);
  if (path == nullptr) return;
  std::ofstream(path, std::ios::app) << line + '\n' << std::flush;
}

int cores_of_this_thread() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  hang_at("device");
  note("HOST_MODULE_OPTIONS", "local rank " + std::to_string(options.local_rank) + " of " +
                                  std::to_string(options.local_size) +
                                  (options.plans.deterministic ? ", deterministic" : "") +
                                  (options.exchanges_by_nccl ? ", exchanges by NCCL" : "") + ", " +
                                  std::to_string(cores_of_this_thread()) + " cores");
  if (test::uses_host_streams()) return test::make_device_with_streams();
  return make_host_device(
      std::getenv("HOST_MODULE_LATE") != nullptr ? HostWork::late : HostWork::at_once,
      HostMemoryGuard::on);
}

DeviceIdentity identify(const Device& /*device*/) {
  const bool shared = std::getenv("HOST_MODULE_SHARED") != nullptr;
  const char* const capability = std::getenv("HOST_MODULE_CAPABILITY");
  return {.uuid = "GPU-" + (shared ? std::string("shared") : std::to_string(getpid())),
          .bus_id = bus_id(),
          .gpu = capability == nullptr ? GpuClass::sm_90 : gpu_class(std::atoi(capability), 0)};
}

/// A host device's memory is host memory, so the MPI communicator can use it when the queued work
/// is done, while it is accessible.
class HostDeviceCommunicator final : public DeviceCommunicator {
 public:
  HostDeviceCommunicator(Device& device, std::unique_ptr<Communicator> host)
      : device_(device), host_(std::move(host)) {}

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int size() const noexcept override { return host_->size(); }
  void barrier() override {
    device_.synchronize();
    host_->barrier();
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    const auto access = finish();
    host_->all_reduce_buffer(buffer, op);
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    const auto access = finish();
    host_->broadcast_buffer(buffer, root);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const auto access = finish();
    host_->all_gather_buffer(mine, all);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    const auto access = finish();
    host_->gather_buffer(mine, all, root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    const auto access = finish();
    host_->scatter_buffer(all, mine, root);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    const auto access = finish();
    host_->reduce_scatter_buffer(all, mine, op);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    auto access = finish();
    return started(host_->start_all_reduce_buffer(buffer, op), std::move(access));
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    auto access = finish();
    return started(host_->start_reduce_scatter_buffer(all, mine, op), std::move(access));
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    auto access = finish();
    return started(host_->start_all_gather_buffer(mine, all), std::move(access));
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    auto access = finish();
    return started(host_->start_send_buffer(buffer, to), std::move(access));
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    auto access = finish();
    return started(host_->start_receive_buffer(buffer, from), std::move(access));
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<HostDeviceCommunicator>(device_, host_->split(color, key));
  }
  bool test(Request& request) override {
    const int slot = request.slot;
    const bool done = host_->test(request);
    if (done) accesses_.erase(slot);
    return done;
  }
  void wait(Request& request) override {
    const int slot = request.slot;
    host_->wait(request);
    accesses_.erase(slot);
  }
  void check() override {}
  void synchronize() override { device_.synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    while (!reached()) {
    }
  }

 private:
  /// Waits for queued work; the memory is then accessible while the result exists.
  [[nodiscard]] std::shared_ptr<void> finish() {
    device_.synchronize();
    return access_memory(device_);
  }
  [[nodiscard]] Request started(Request request, std::shared_ptr<void> access) {
    if (!request.done()) accesses_[request.slot] = std::move(access);
    return request;
  }

  Device& device_;
  std::unique_ptr<Communicator> host_;
  std::map<int, std::shared_ptr<void>> accesses_;  ///< by slot of a request
};

int nccl_version() {
  const char* const version = std::getenv("HOST_MODULE_NCCL");
  return version == nullptr ? 22809 : std::atoi(version);
}

std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl(Device& device, Rendezvous& rendezvous,
                                                           std::span<const std::vector<int>> sets,
                                                           const NcclCommunicatorOptions& options) {
  hang_at("nccl");
  const char* const nvls = std::getenv("NCCL_NVLS_ENABLE");
  note("HOST_MODULE_NVLS", nvls == nullptr ? "unset" : nvls);
  if (test::uses_host_streams()) return test::make_nccl_with_streams(rendezvous, sets, options);
  rendezvous.meet({"the start of NCCL", options.start_limit}, {});
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
  for (const std::vector<int>& ranks : sets) {
    communicators.push_back(std::make_unique<HostDeviceCommunicator>(
        device, make_mpi_communicator()->split(ranks.front(), 0)));
  }
  return communicators;
}

std::unique_ptr<DeviceCommunicator> make_staged(Device& device, std::unique_ptr<Communicator> host,
                                                const StagedCommunicatorOptions& options) {
  if (test::uses_host_streams()) return test::make_staged_with_streams(std::move(host), options);
  return std::make_unique<HostDeviceCommunicator>(device, std::move(host));
}

std::string choose(Device& device, const Graph& graph, Precision precision, std::int64_t batch_size,
                   const std::string& known, AlgorithmCache& cache) {
  std::string text = choose_algorithms(device, graph, precision, batch_size, known, cache);
  note("HOST_MODULE_ALGORITHMS", "timed " + std::to_string(convolutions(device).timed.size()));
  return text;
}
void take(Device& device, const std::string& text) {
  set_algorithms(device, text);
  note("HOST_MODULE_ALGORITHMS", "took " + std::to_string(convolutions(device).taken.size()));
}

/// Writes rank 0's marks to a file, one per line.
class MarksFile final : public PhaseMarks {
 public:
  explicit MarksFile(const char* path) : file_(path) {}
  void begin_step(std::int64_t step) noexcept override { file_ << "step " << step << std::endl; }
  void enter(const char* name, bool outside) noexcept override {
    file_ << (outside ? "" : "  ") << name << std::endl;
  }
  void start_bucket(int bucket) noexcept override { file_ << "  bucket " << bucket << std::endl; }

 private:
  std::ofstream file_;
};

PhaseMarks* phase_marks() {
  if (test::uses_host_streams()) return test::fault_marks();
  const char* const path = std::getenv("HOST_MODULE_MARKS");
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (path == nullptr || (rank != nullptr && std::string_view(rank) != "0")) return nullptr;
  static MarksFile marks(path);
  return &marks;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ModuleTable* lockstep_cuda_module() {
  static const std::string interface = module_interface();
  static const ModuleTable table{.interface = interface.c_str(),
                                 .probe = probe,
                                 .make_device = make_device,
                                 .identify = identify,
                                 .make_engine = make_device_engine,
                                 .make_optimizer = make_device_optimizer,
                                 .nccl_version = nccl_version,
                                 .make_nccl = make_nccl,
                                 .make_staged = make_staged,
                                 .choose_algorithms = choose,
                                 .set_algorithms = take,
                                 .phase_marks = phase_marks};
  return &table;
}
