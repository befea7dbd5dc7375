// A module without CUDA, for tests of the module loader. FAKE_STATUS is the result of its probe;
// FAKE_INTERFACE makes it a module of another build.
#include "compute/module_interface.hpp"
#include "lockstep/core/error.hpp"

namespace {

using namespace lockstep::gpu;

DriverState probe() {
  return {.status = DriverState::Status::FAKE_STATUS,
          .driver_version = 12040,
          .runtime_version = 13000,
          .devices = 2,
          .detail = ""};
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  lockstep::fail(lockstep::ExitStatus::usage, "no GPU for local rank {}", options.local_rank);
}

DeviceIdentity identify(const Device& /*device*/) {
  return {};
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ModuleTable* lockstep_cuda_module() {
#ifdef FAKE_INTERFACE
  static const std::string interface = FAKE_INTERFACE;
#else
  static const std::string interface = module_interface();
#endif
  static const ModuleTable table{.interface = interface.c_str(),
                                 .probe = probe,
                                 .make_device = make_device,
                                 .identify = identify,
                                 .make_engine = nullptr,
                                 .make_optimizer = nullptr,
                                 .nccl_version = nullptr,
                                 .make_nccl = nullptr,
                                 .make_staged = nullptr,
                                 .choose_algorithms = nullptr,
                                 .set_algorithms = nullptr,
                                 .phase_marks = nullptr};
  return &table;
}
