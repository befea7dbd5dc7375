#include "lockstep/compute/cuda_module.hpp"

#include "lockstep/core/error.hpp"
#include "module_interface.hpp"

#include <fmt/format.h>

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<fs::path>& paths) {
  std::string text;
  for (const auto& path : paths) {
    if (!text.empty()) text += ", ";
    text += path.string();
  }
  return text;
}

fs::path find_module() {
  const auto directories = cuda_module_directories();
  for (const auto& directory : directories) {
    std::error_code ignored;
    auto path = directory / gpu::module_file_name;
    if (fs::exists(path, ignored)) return path;
  }
  fail(ExitStatus::usage,
       "this installation cannot use GPUs ({} is not in {}); build Lockstep with "
       "-DLOCKSTEP_CUDA=ON, name the module's directory in LOCKSTEP_MODULE_PATH, or use --device "
       "cpu",
       gpu::module_file_name, joined(directories));
}

const gpu::ModuleTable& open_module(const fs::path& path) {
  // Never closed: CUDA's libraries do not survive dlclose.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ExitStatus::usage,
         "the GPU module {} cannot be loaded ({}); make the CUDA and cuDNN libraries it was built "
         "with known to the loader (a module of the cluster, or LD_LIBRARY_PATH), or use --device "
         "cpu",
         path.string(), dlerror());
  }
  const auto entry =
      reinterpret_cast<gpu::ModuleEntryPoint>(dlsym(library, gpu::module_entry_point));
  if (entry == nullptr) {
    fail(ExitStatus::usage,
         "{} is no GPU module of Lockstep (it has no {}); install the program and the module from "
         "one build",
         path.string(), gpu::module_entry_point);
  }
  const gpu::ModuleTable& table = *entry();
  if (table.interface != gpu::module_interface()) {
    fail(ExitStatus::usage,
         "the GPU module {} is of another build (the module has {}; the program {}); install both "
         "from one build",
         path.string(), table.interface, gpu::module_interface());
  }
  return table;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string visible_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : fmt::format(", CUDA_VISIBLE_DEVICES is \"{}\"", visible);
}

/// Why this host cannot use a GPU; empty if it can.
std::string describe(const gpu::DriverState& state) {
  using Status = gpu::DriverState::Status;
  switch (state.status) {
    case Status::usable:
      break;
    case Status::no_driver:
      return "there is no NVIDIA driver on this host (CUDA finds none); run on a host with GPUs, "
             "or use --device cpu";
    case Status::old_driver:
      return fmt::format(
          "the NVIDIA driver of this host is too old (it supports CUDA {}; this build needs {}) "
          "update the driver, build with an older CUDA, or use --device cpu",
          version_text(state.driver_version), version_text(state.runtime_version));
    case Status::no_device:
      return fmt::format(
          "no usable GPU is visible on this host ({}{}); ask for GPUs in the allocation, or use "
          "--device cpu",
          state.detail.empty() ? "the driver shows none" : state.detail, visible_devices());
    case Status::failed:
      return fmt::format(
          "the GPUs of this host cannot be used ({}{}); see whether nvidia-smi lists them, or use "
          "--device cpu",
          state.detail, visible_devices());
  }
  return {};
}

}  // namespace

std::vector<fs::path> cuda_module_directories() {
  std::vector<fs::path> directories;
  if (const char* set = std::getenv("LOCKSTEP_MODULE_PATH"); set != nullptr && *set != '\0') {
    std::string_view rest = set;
    while (!rest.empty()) {
      const auto end = rest.find(':');
      if (end != 0) directories.emplace_back(rest.substr(0, end));
      if (end != 0 && !directories.back().is_absolute()) {
        fail(ExitStatus::usage,
             "LOCKSTEP_MODULE_PATH={} names {}, which is not absolute (a module could be loaded "
             "that somebody put into the current directory); give absolute paths",
             set, directories.back().string());
      }
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
    return directories;
  }
  std::error_code failed;
  const auto program = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return directories;
  directories.push_back(program.parent_path());
  directories.push_back((program.parent_path() / LOCKSTEP_MODULE_DIRECTORY).lexically_normal());
  return directories;
}

const gpu::ModuleTable& load_cuda_module() {
  const auto file = find_module();
  const gpu::ModuleTable& table = open_module(file);
  if (const std::string reason = describe(table.probe()); !reason.empty()) {
    throw Error(ExitStatus::usage, reason);
  }
  return table;
}

CudaAvailability probe_cuda() {
  try {
    const gpu::DriverState state = open_module(find_module()).probe();
    return {.available = state.status == gpu::DriverState::Status::usable,
            .devices = state.devices,
            .reason = describe(state),
            .peers = state.peers,
            .bus_ids = state.bus_ids};
  } catch (const Error& error) {
    return {.available = false, .devices = 0, .reason = error.what()};
  }
}

}  // namespace lockstep
