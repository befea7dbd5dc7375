#include "engine/gpu/cuda/nvjpeg_library.hpp"

#include <cuda_runtime.h>
#include <boost/test/unit_test.hpp>

#include <thread>

using namespace lockstep::gpu;
using namespace lockstep::gpu::cuda;

namespace {

thread_local int current_device = 0;
constexpr int device = 2;

}  // namespace

extern "C" {
cudaError_t cudaSetDevice(int wanted) {
  current_device = wanted;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* current) {
  *current = current_device;
  return cudaSuccess;
}
}

BOOST_AUTO_TEST_CASE(threads_of_the_loader_use_the_ranks_device) {
  (void)cudaSetDevice(device);
  const auto library = load_nvjpeg(device);
  BOOST_TEST(library->version() == "nvJPEG 0.1.2");
  JpegHandle handle = nullptr;
  BOOST_REQUIRE(library->create(JpegBackend::hardware, 0, &handle) == JpegStatus::success);
  const auto on_a_new_thread = [](const auto& call) {
    JpegStatus status{};
    std::thread([&] { status = call(); }).join();
    return status == JpegStatus::success;
  };
  JpegStream stream = nullptr;
  int refused = 1;
  BOOST_TEST(on_a_new_thread([&] { return library->stream_create(handle, &stream); }));
  BOOST_TEST(
      on_a_new_thread([&] { return library->stream_parse_header(handle, nullptr, 0, stream); }));
  BOOST_TEST(
      on_a_new_thread([&] { return library->decode_batched_supported(handle, stream, &refused); }));
  std::thread([&] {
    library->stream_destroy(stream);
    BOOST_TEST(current_device == device);
  }).join();
  BOOST_TEST(refused == 0);
}
