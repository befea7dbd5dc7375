#include "lockstep/compute/cuda_module.hpp"

#include "compute/module_interface.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace lockstep;

namespace {

/// Path of the fake module `name` in the build.
std::string fake(const std::string& name) {
  return fmt::format("{}/{}", FAKE_MODULES, name);
}

void look_in(const std::string& directories) {
  setenv("LOCKSTEP_MODULE_PATH", directories.c_str(), 1);
}

/// The message of load_cuda_module's failure, which must equal probe_cuda's reason.
std::string failure() {
  const auto found = probe_cuda();
  BOOST_TEST(!found.available);
  try {
    (void)load_cuda_module();
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == static_cast<int>(ExitStatus::usage));
    BOOST_TEST(found.reason == error.what());
    return error.what();
  }
  BOOST_FAIL("a module was loaded");
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  BOOST_TEST_MESSAGE("'" << part << "' is not in: " << text);
  return false;
}

}  // namespace

BOOST_AUTO_TEST_CASE(missing_module_is_reported_with_the_searched_directories) {
  look_in("/nowhere:/not/there");

  const auto message = failure();

  BOOST_TEST(contains(message, "(lockstep-cuda.so is not in /nowhere, /not/there)"));
  BOOST_TEST(contains(message, "--device cpu"));
}

BOOST_AUTO_TEST_CASE(module_is_searched_beside_the_program_and_in_the_install_directory) {
  unsetenv("LOCKSTEP_MODULE_PATH");

  const auto directories = cuda_module_directories();

  BOOST_REQUIRE(directories.size() == 2U);
  BOOST_TEST(directories[0].string() ==
             std::filesystem::read_symlink("/proc/self/exe").parent_path().string());
  BOOST_TEST(directories[1].filename().string() == "lockstep");
}

BOOST_AUTO_TEST_CASE(a_relative_directory_is_refused) {
  for (const char* relative : {"/a:modules", ".", "modules:/a"}) {
    look_in(relative);

    BOOST_TEST(contains(failure(), "is not absolute"));
  }
}

BOOST_AUTO_TEST_CASE(empty_entries_of_the_path_are_ignored) {
  look_in(":/a::/b:");

  const auto directories = cuda_module_directories();

  BOOST_REQUIRE(directories.size() == 2U);
  BOOST_TEST(directories[0].string() == "/a");
  BOOST_TEST(directories[1].string() == "/b");
}

BOOST_AUTO_TEST_CASE(module_of_another_build_is_refused_with_both_versions) {
  look_in(fake("other_build"));

  const auto message = failure();

  BOOST_TEST(contains(message, "interface 0 of lockstep 0.0.1"));
  BOOST_TEST(contains(message, gpu::module_interface()));
}

BOOST_AUTO_TEST_CASE(missing_library_is_named) {
  look_in(fake("needs_library"));

  const auto message = failure();

  BOOST_TEST(contains(message, "cannot be loaded"));
  BOOST_TEST(contains(message, "liblockstep_absent"));
  BOOST_TEST(contains(message, "LD_LIBRARY_PATH"));
}

BOOST_AUTO_TEST_CASE(library_without_the_entry_point_is_refused) {
  look_in(fake("no_entry"));

  BOOST_TEST(contains(failure(), "is no GPU module of Lockstep"));
}

BOOST_AUTO_TEST_CASE(missing_driver_is_reported) {
  look_in(fake("no_driver"));

  BOOST_TEST(contains(failure(), "there is no NVIDIA driver on this host"));
}

BOOST_AUTO_TEST_CASE(old_driver_is_reported_with_both_versions) {
  look_in(fake("old_driver"));

  BOOST_TEST(contains(failure(), "too old (it supports CUDA 12.4; this build needs 13.0)"));
}

BOOST_AUTO_TEST_CASE(missing_device_is_reported_with_cuda_visible_devices) {
  look_in(fake("no_device"));
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);

  const auto message = failure();
  unsetenv("CUDA_VISIBLE_DEVICES");

  BOOST_TEST(contains(message, "no usable GPU is visible on this host"));
  BOOST_TEST(contains(message, "CUDA_VISIBLE_DEVICES is \"-1\""));
}

BOOST_AUTO_TEST_CASE(errors_of_the_module_reach_the_program) {
  look_in("/nowhere:" + fake("usable"));
  const auto found = probe_cuda();
  BOOST_TEST(found.available);
  BOOST_TEST(found.devices == 2);
  BOOST_TEST(found.reason.empty());
  const auto& module = load_cuda_module();

  BOOST_CHECK_EXCEPTION((void)module.make_device({.local_rank = 3, .local_size = 4, .plans = {}}),
                        Error, [](const Error& error) {
                          return error.status() == ExitStatus::usage &&
                                 contains(error.what(), "no GPU for local rank 3");
                        });
}

BOOST_AUTO_TEST_CASE(real_module_loads_and_reports_the_devices_of_this_host) {
#ifdef REAL_MODULE
  look_in(REAL_MODULE);

  const auto found = probe_cuda();

  BOOST_TEST_MESSAGE(
      (found.available ? "usable GPUs: " + std::to_string(found.devices) : found.reason));
  if (found.available) {
    BOOST_TEST(load_cuda_module().make_device({})->description() != "");
  } else {
    const auto message = failure();
    BOOST_TEST((contains(message, "no NVIDIA driver") || contains(message, "too old") ||
                contains(message, "no usable GPU") || contains(message, "cannot be used")));
  }
#else
  std::fprintf(stderr, "skipped: this build has no GPU module (CUDA was not found)\n");
#endif
}

BOOST_AUTO_TEST_CASE(real_module_marks_steps_phases_and_buckets_for_profilers) {
#ifdef REAL_MODULE
  setenv("NVTX_INJECTION64_PATH", PROFILER, 1);
  void* const module = dlopen(fmt::format("{}/{}", REAL_MODULE, gpu::module_file_name).c_str(),
                              RTLD_NOW | RTLD_LOCAL);
  BOOST_REQUIRE_MESSAGE(module != nullptr, dlerror());
  void* const profiler = dlopen(PROFILER, RTLD_NOW | RTLD_LOCAL);
  BOOST_REQUIRE_MESSAGE(profiler != nullptr, dlerror());
  const auto entry =
      reinterpret_cast<gpu::ModuleEntryPoint>(dlsym(module, gpu::module_entry_point));
  const auto lines = reinterpret_cast<const char* (*)()>(dlsym(profiler, "profiler_lines"));
  PhaseMarks& marks = *entry()->phase_marks();

  marks.begin_step(7);
  marks.enter("backward", false);
  marks.start_bucket(1);
  marks.enter("update", false);
  marks.enter("save", true);
  marks.enter("update", false);  // the phase continues after a save interrupted it
  marks.begin_step(8);

  BOOST_TEST(lines() == std::string("domain lockstep\nbegin step 7\nbegin backward\n"
                                    "mark bucket 1\nend\nbegin update\nend\nend\n"
                                    "begin save\nend\nbegin update\nend\nbegin step 8\n"));
#else
  std::fprintf(stderr, "skipped: this build has no GPU module (CUDA was not found)\n");
#endif
}
