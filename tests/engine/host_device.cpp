#include "host_device.hpp"

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

namespace lockstep::cuda {
namespace {

std::vector<float> widened(const void* values, std::size_t count, DataType type) {
  std::vector<float> result(count);
  convert(nullptr, values, type, result.data(), DataType::f32, count);
  return result;
}

class HostConvolution final : public Convolution {
 public:
  explicit HostConvolution(const ConvolutionShape& shape) : shape_(shape) {}

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 64; }
  // Both ways to the fp32 arena are taken by some type.
  [[nodiscard]] DataType weight_gradient_type() const noexcept override {
    return shape_.type == DataType::f16 ? DataType::f16 : DataType::f32;
  }

  void forward(const void* x, const void* weights, void* y, void*) override {
    const auto in = widened(x, in_values(), shape_.type);
    const auto w = widened(weights, weight_values(), shape_.type);
    std::vector<float> out(out_values(), 0.0F);
    const std::int64_t positions = shape_.batch * shape_.out_height() * shape_.out_width();
#pragma omp parallel for schedule(static)
    for (std::int64_t position = 0; position < positions; ++position) {
      for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
        for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
          float sum = 0;
          for (std::int64_t i = 0; i < shape_.in_channels; ++i) {
            sum += in[pixel + static_cast<std::size_t>(i)] * w[weight_at(o, tap, i)];
          }
          out[static_cast<std::size_t>(position * shape_.out_channels + o)] += sum;
        }
      });
    }
    convert(nullptr, out.data(), DataType::f32, y, shape_.type, out.size());
  }

  void backward_data(const void* dy, const void* weights, void* dx, void*) override {
    const auto gradient = widened(dy, out_values(), shape_.type);
    const auto w = widened(weights, weight_values(), shape_.type);
    std::vector<float> in(in_values(), 0.0F);
    const std::int64_t per_image = shape_.out_height() * shape_.out_width();
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < shape_.batch; ++n) {
      for (std::int64_t p = n * per_image; p < (n + 1) * per_image; ++p) {
        for_taps(p, [&](std::size_t pixel, std::int64_t tap) {
          for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
            const float g = gradient[static_cast<std::size_t>(p * shape_.out_channels + o)];
            for (std::int64_t i = 0; i < shape_.in_channels; ++i) {
              in[pixel + static_cast<std::size_t>(i)] += g * w[weight_at(o, tap, i)];
            }
          }
        });
      }
    }
    convert(nullptr, in.data(), DataType::f32, dx, shape_.type, in.size());
  }

  void backward_weights(const void* x, const void* dy, void* dw, void*) override {
    const auto in = widened(x, in_values(), shape_.type);
    const auto gradient = widened(dy, out_values(), shape_.type);
    std::vector<float> w(weight_values(), 0.0F);
    const std::int64_t positions = shape_.batch * shape_.out_height() * shape_.out_width();
#pragma omp parallel for schedule(static)
    for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
      for (std::int64_t position = 0; position < positions; ++position) {
        const float g = gradient[static_cast<std::size_t>(position * shape_.out_channels + o)];
        for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
          for (std::int64_t i = 0; i < shape_.in_channels; ++i) {
            w[weight_at(o, tap, i)] += g * in[pixel + static_cast<std::size_t>(i)];
          }
        });
      }
    }
    convert(nullptr, w.data(), DataType::f32, dw, weight_gradient_type(), w.size());
  }

 private:
  [[nodiscard]] std::size_t in_values() const {
    return static_cast<std::size_t>(shape_.batch * shape_.height * shape_.width *
                                    shape_.in_channels);
  }
  [[nodiscard]] std::size_t out_values() const {
    return static_cast<std::size_t>(shape_.batch * shape_.out_height() * shape_.out_width() *
                                    shape_.out_channels);
  }
  [[nodiscard]] std::size_t weight_values() const {
    return static_cast<std::size_t>(shape_.out_channels * shape_.kernel * shape_.kernel *
                                    shape_.in_channels);
  }
  [[nodiscard]] std::size_t weight_at(std::int64_t o, std::int64_t tap, std::int64_t i) const {
    return static_cast<std::size_t>((o * shape_.kernel * shape_.kernel + tap) * shape_.in_channels +
                                    i);
  }
  /// Calls visit(input pixel's first value, tap) for each tap of an output position that is not
  /// padding.
  template <typename Visit>
  void for_taps(std::int64_t position, Visit&& visit) const {
    const std::int64_t ow = position % shape_.out_width();
    const std::int64_t oh = position / shape_.out_width() % shape_.out_height();
    const std::int64_t n = position / shape_.out_width() / shape_.out_height();
    for (std::int64_t kh = 0; kh < shape_.kernel; ++kh) {
      for (std::int64_t kw = 0; kw < shape_.kernel; ++kw) {
        const std::int64_t h = oh * shape_.stride - shape_.padding + kh;
        const std::int64_t w = ow * shape_.stride - shape_.padding + kw;
        if (h < 0 || w < 0 || h >= shape_.height || w >= shape_.width) continue;
        visit(static_cast<std::size_t>(((n * shape_.height + h) * shape_.width + w) *
                                       shape_.in_channels),
              kh * shape_.kernel + kw);
      }
    }
  }

  ConvolutionShape shape_;
};

/// How far the queue of transfers must have come; work is always done.
struct HostEvent final : Event {
  std::size_t transfers = 0;
  std::chrono::steady_clock::time_point marked;
};

class HostReplay final : public Replay {
 public:
  explicit HostReplay(std::function<void()> work) : work_(std::move(work)) {}
  void queue() override { work_(); }

 private:
  std::function<void()> work_;
};

/// Work is done at once, transfers as late as can be: when somebody waits for them.
class HostDevice final : public Device {
 public:
  [[nodiscard]] std::string description() const override { return "the host as a device"; }
  [[nodiscard]] Stream stream() noexcept override { return nullptr; }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* const memory = allocate_host(bytes);
    bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
    return memory;
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    bytes_ -= bytes;
    std::free(memory);
  }
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return peak_bytes_; }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override {
    void* memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0xFF, bytes);
    return memory;
  }
  void release_host(void* memory) noexcept override { std::free(memory); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    std::memmove(to, from, bytes);
  }
  void clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
  void transfer_to_device(void* to, const void* from, std::size_t bytes) override {
    transfers_.push_back({to, from, bytes});
  }
  void synchronize() override {}
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<HostEvent>();
  }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override { return make_event(); }
  [[nodiscard]] double seconds_between(const Event& begin, const Event& end) override {
    const auto time = [](const Event& event) {
      return static_cast<const HostEvent&>(event).marked;
    };
    return std::chrono::duration<double>(time(end) - time(begin)).count();
  }
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()> work) override {
    return std::make_unique<HostReplay>(std::move(work));
  }
  [[nodiscard]] double time(const std::function<void()>& work) override {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void mark(Event& event, Queue queue) override {
    auto& marked = static_cast<HostEvent&>(event);
    marked.transfers = queue == Queue::work ? 0 : done_ + transfers_.size();
    marked.marked = std::chrono::steady_clock::now();
  }
  void queue_wait(Queue queue, const Event& event) override {
    if (queue == Queue::work) wait(event);
  }
  void wait(const Event& event) override {
    for (; done_ < static_cast<const HostEvent&>(event).transfers; ++done_) {
      const Transfer& next = transfers_.front();
      std::memcpy(next.to, next.from, next.bytes);
      transfers_.pop_front();
    }
  }
  [[nodiscard]] std::unique_ptr<Convolution> make_convolution(const ConvolutionShape& shape,
                                                              ConvolutionPasses) override {
    return std::make_unique<HostConvolution>(shape);
  }

 private:
  struct Transfer {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::deque<Transfer> transfers_;
  std::size_t done_ = 0;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_host_device() {
  return std::make_unique<HostDevice>();
}

}  // namespace lockstep::cuda
