#include "engine/gpu/cuda/cuda_device.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/float16.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;
using namespace lockstep::gpu::cuda;

namespace {

bool no_device() {
  int visible = 0;
  if (cudaGetDeviceCount(&visible) == cudaSuccess && visible > 0) return false;
  (void)cudaGetLastError();
  std::fprintf(stderr, "skipped: no usable GPU on this host\n");
  if (std::getenv("LOCKSTEP_TEST_ENGINES") != nullptr) std::_Exit(77);  // a GPU was asked for
  return true;
}

/// Multiples of 1/8 in [-1, 1], which all types represent exactly.
std::vector<float> values(std::int64_t count, std::uint32_t seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (auto& value : result) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int>(seed >> 24) % 17 - 8) / 8.0F;
  }
  return result;
}

std::vector<char> stored(const std::vector<float>& values, DataType type) {
  std::vector<char> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    char* to = bytes.data() + i * size_of(type);
    if (type == DataType::f32) {
      std::memcpy(to, &values[i], 4);
    } else if (type == DataType::bf16) {
      const auto half = Bfloat16(values[i]);
      std::memcpy(to, &half, 2);
    } else {
      const auto half = Float16(values[i]);
      std::memcpy(to, &half, 2);
    }
  }
  return bytes;
}

std::vector<float> loaded(const std::vector<char>& bytes, DataType type) {
  std::vector<float> values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const char* from = bytes.data() + i * size_of(type);
    if (type == DataType::f32) {
      std::memcpy(&values[i], from, 4);
    } else if (type == DataType::bf16) {
      Bfloat16 half;
      std::memcpy(&half, from, 2);
      values[i] = static_cast<float>(half);
    } else {
      Float16 half;
      std::memcpy(&half, from, 2);
      values[i] = static_cast<float>(half);
    }
  }
  return values;
}

/// A tensor on the device.
class Tensor {
 public:
  Tensor(Device& device, const std::vector<float>& values, DataType type)
      : device_(device), type_(type), bytes_(stored(values, type)), memory_(device, bytes_.size()) {
    device_.copy_to_device(memory_.data(), bytes_.data(), bytes_.size());
  }
  [[nodiscard]] void* data() { return memory_.data(); }
  [[nodiscard]] std::vector<float> read() {
    std::vector<char> bytes(bytes_.size());
    device_.copy_to_host(bytes.data(), memory_.data(), bytes.size());
    device_.synchronize();
    return loaded(bytes, type_);
  }

 private:
  Device& device_;
  DataType type_;
  std::vector<char> bytes_;
  DeviceArray<char> memory_;
};

/// Calls f(x index, weight index, y index) for every product of a convolution.
template <typename F>
void for_each_product(const ConvolutionShape& s, F f) {
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t p = 0; p < s.out_height(); ++p) {
      for (std::int64_t q = 0; q < s.out_width(); ++q) {
        for (std::int64_t k = 0; k < s.out_channels; ++k) {
          for (std::int64_t r = 0; r < s.kernel; ++r) {
            for (std::int64_t t = 0; t < s.kernel_columns(); ++t) {
              const std::int64_t h = p * s.stride - s.padding + r;
              const std::int64_t w = q * s.stride - s.padding + t;
              if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
              for (std::int64_t c = 0; c < s.in_channels; ++c) {
                f(((n * s.height + h) * s.width + w) * s.in_channels + c,
                  ((k * s.kernel + r) * s.kernel_columns() + t) * s.in_channels + c,
                  ((n * s.out_height() + p) * s.out_width() + q) * s.out_channels + k);
              }
            }
          }
        }
      }
    }
  }
}

/// `relative` is one rounding of the stored type; before that, sums of multiples of 1/64 are exact.
void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 float relative, const char* what) {
  BOOST_REQUIRE(actual.size() == expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!(std::abs(actual[i] - expected[i]) <= relative * std::abs(expected[i]) + 1e-5F)) ++wrong;
  }
  BOOST_TEST(wrong == 0U, what << ": " << wrong << " of " << actual.size() << " values differ");
}

void check_convolution(Device& device, const ConvolutionShape& s) {
  const auto x = values(s.batch * s.height * s.width * s.in_channels, 1);
  const auto weights = values(s.out_channels * s.kernel * s.kernel_columns() * s.in_channels, 2);
  const auto dy = values(s.batch * s.out_height() * s.out_width() * s.out_channels, 3);
  std::vector<float> y(dy.size());
  std::vector<float> dx(x.size());
  std::vector<float> dw(weights.size());
  for_each_product(s, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    const auto [a, b, c] = std::array{static_cast<std::size_t>(i), static_cast<std::size_t>(j),
                                      static_cast<std::size_t>(k)};
    y[c] += x[a] * weights[b];
    dx[a] += dy[c] * weights[b];
    dw[b] += dy[c] * x[a];
  });
  const auto convolution = device.convolutions().make(s, all_passes);
  DeviceArray<char> workspace(device, convolution->workspace_bytes());
  Tensor device_x(device, x, s.type);
  Tensor device_weights(device, weights, s.type);
  Tensor device_dy(device, dy, s.type);
  Tensor out_y(device, std::vector<float>(y.size(), -1.0F), s.type);
  Tensor out_dx(device, std::vector<float>(x.size(), -1.0F), s.type);
  Tensor out_dw(device, std::vector<float>(dw.size(), -1.0F), s.type);

  convolution->forward(device_x.data(), device_weights.data(), out_y.data(), workspace.data());
  convolution->backward_data(device_dy.data(), device_weights.data(), out_dx.data(),
                             workspace.data());
  convolution->backward_weights(device_x.data(), device_dy.data(), out_dw.data(), workspace.data());

  const auto rounding = [](DataType type) {
    return type == DataType::f32 ? 1e-6F : type == DataType::bf16 ? 0x1p-8F : 0x1p-11F;
  };
  expect_near(out_y.read(), y, rounding(s.type), "forward");
  expect_near(out_dx.read(), dx, rounding(s.type), "data gradient");
  expect_near(out_dw.read(), dw, rounding(s.type), "weight gradient");
}

}  // namespace

BOOST_AUTO_TEST_CASE(copies_are_exact) {
  if (no_device()) return;
  CudaDevice device({});
  BOOST_TEST_MESSAGE(device.description() << ", " << device.identity().uuid);
  DeviceArray<float> from(device, 1000);
  DeviceArray<float> to(device, 1000);
  DeviceArray<float> host(device, 1000, DeviceArray<float>::Place::host);
  for (std::size_t i = 0; i < 1000; ++i) host.data()[i] = static_cast<float>(i);

  device.copy_to_device(from.data(), host.data(), host.bytes());
  device.copy_on_device(to.data(), from.data(), from.bytes());
  device.clear(to.data(), 4);
  device.synchronize();
  std::memset(host.data(), 0xff, host.bytes());
  device.copy_to_host(host.data(), to.data(), to.bytes());
  device.synchronize();

  BOOST_TEST(host.data()[0] == 0.0F);
  BOOST_TEST(host.data()[999] == 999.0F);
}

BOOST_AUTO_TEST_CASE(memory_is_cleared) {
  if (no_device()) return;
  CudaDevice device({});
  DeviceArray<float> memory(device, 4096);
  std::vector<float> host(4096, 1.0F);
  device.copy_to_device(memory.data(), host.data(), memory.bytes());

  device.clear(memory.data(), memory.bytes());
  device.copy_to_host(host.data(), memory.data(), memory.bytes());
  device.synchronize();

  BOOST_TEST(host == std::vector<float>(4096));
}

BOOST_AUTO_TEST_CASE(the_error_of_a_too_large_allocation_states_the_free_memory) {
  if (no_device()) return;
  CudaDevice device({});

  BOOST_CHECK_EXCEPTION((void)device.allocate(std::size_t{1} << 44), Error, [](const Error& error) {
    return error.status() == ExitStatus::internal &&
           std::string(error.what()).find("GiB are free") != std::string::npos;
  });
  device.synchronize();
}

BOOST_AUTO_TEST_CASE(convolutions_of_all_precisions_are_the_sums_of_products) {
  if (no_device()) return;
  for (const int candidates : {0, 4}) {
    for (const bool deterministic : {false, true}) {
      CudaDevice device({.local_rank = 0,
                         .local_size = 1,
                         .plans = {.deterministic = deterministic,
                                   .timed_candidates = candidates,
                                   .smallest_trial = 0}});
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
        for (const std::int64_t kernel : {1, 3}) {
          for (const std::int64_t stride : {1, 2}) {
            BOOST_TEST_CONTEXT("type " << static_cast<int>(type) << ", kernel " << kernel
                                       << ", stride " << stride << ", candidates " << candidates) {
              const ConvolutionShape shape{.batch = 2,
                                           .height = 9,
                                           .width = 9,
                                           .in_channels = 16,
                                           .out_channels = 24,
                                           .kernel = kernel,
                                           .stride = stride,
                                           .padding = kernel / 2,
                                           .type = type};
              for (const ConvolutionPass pass :
                   {ConvolutionPass::forward, ConvolutionPass::backward_data,
                    ConvolutionPass::backward_weights}) {
                const std::string fastest =
                    device.convolutions().fastest({.shape = shape, .pass = pass});
                BOOST_TEST(fastest.empty() == (candidates == 0));
              }
              check_convolution(device, shape);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(algorithms_are_selected_by_name) {
  if (no_device()) return;
  const ConvolutionShape shape{.batch = 8,
                               .height = 14,
                               .width = 14,
                               .in_channels = 64,
                               .out_channels = 64,
                               .kernel = 3,
                               .padding = 1,
                               .type = DataType::bf16};
  const ConvolutionRequest request{.shape = shape, .pass = ConvolutionPass::forward};
  const PlanOptions options{.deterministic = true, .timed_candidates = 8};
  CudaDevice timed({.plans = options});
  const std::string fastest = timed.convolutions().fastest(request);
  CudaDevice told({.plans = options});
  told.convolutions().set_algorithms({{request.text(), fastest}});
  CudaDevice misled({.plans = options});
  misled.convolutions().set_algorithms({{request.text(), "no such engine"}});

  BOOST_TEST(!fastest.empty());
  check_convolution(timed, shape);
  check_convolution(told, shape);
  check_convolution(misled, shape);
}
