#include "host_device.hpp"

#include "cuda/kernels/host/host_stream.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/float16.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::cuda {
namespace {

std::vector<float> to_floats(const void* values, std::size_t count, DataType type) {
  std::vector<float> result(count);
  convert(nullptr, values, type, result.data(), DataType::f32, count);
  return result;
}

class ConvolutionLoops final {
 public:
  explicit ConvolutionLoops(const ConvolutionShape& shape) : shape_(shape) {}

  // Both ways to the fp32 arena are taken by some type.
  [[nodiscard]] DataType weight_gradient_type() const noexcept {
    return shape_.type == DataType::f16 ? DataType::f16 : DataType::f32;
  }

  void forward(const void* x, const void* weights, void* y) const {
    const auto in = to_floats(x, in_values(), shape_.type);
    const auto w = to_floats(weights, weight_values(), shape_.type);
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

  void backward_data(const void* dy, const void* weights, void* dx) const {
    const auto gradient = to_floats(dy, out_values(), shape_.type);
    const auto w = to_floats(weights, weight_values(), shape_.type);
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

  void backward_weights(const void* x, const void* dy, void* dw) const {
    const auto in = to_floats(x, in_values(), shape_.type);
    const auto gradient = to_floats(dy, out_values(), shape_.type);
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

/// Work in its order, done as far as somebody asks for.
class HostQueue final : public HostStream {
 public:
  void push(std::function<void()> work) override {
    if (recording_ != nullptr) return recording_->push_back(std::move(work));
    pending_.push_back(std::move(work));
  }
  [[nodiscard]] std::size_t queued() const noexcept { return begun_ + pending_.size(); }
  [[nodiscard]] std::size_t left() const noexcept { return pending_.size(); }
  void run_until(std::size_t count) {
    must_not_record();
    while (begun_ < count) {
      const std::function<void()> next = std::move(pending_.front());
      pending_.pop_front();
      ++begun_;
      next();
    }
  }
  void run_all() { run_until(queued()); }
  /// Does one piece of work; whether it was there before.
  [[nodiscard]] bool advance_to(std::size_t count) {
    if (begun_ >= count) return true;
    run_until(begun_ + 1);
    return false;
  }

  using Recording = std::vector<std::function<void()>>;
  /// What `work` pushes, kept.
  [[nodiscard]] Recording record(const std::function<void()>& work) {
    must_not_record();
    Recording recording;
    recording_ = &recording;
    work();
    recording_ = nullptr;
    return recording;
  }
  /// As a device's queue, whose state a recording must not ask for.
  void must_not_record() const {
    if (recording_ != nullptr) throw std::logic_error("a wait or a mark in what is recorded");
  }

 private:
  std::deque<std::function<void()>> pending_;
  std::size_t begun_ = 0;
  Recording* recording_ = nullptr;
};

/// So much of a queue.
struct HostEvent final : Event {
  HostQueue* queue = nullptr;
  std::size_t count = 0;
  /// When the queue came to it.
  std::shared_ptr<std::chrono::steady_clock::time_point> reached =
      std::make_shared<std::chrono::steady_clock::time_point>();
  void wait() const {
    if (queue != nullptr) queue->run_until(count);
  }
  [[nodiscard]] bool advance() const { return queue == nullptr || queue->advance_to(count); }
};

class HostReplay final : public Replay {
 public:
  explicit HostReplay(std::function<void()> queue) : queue_(std::move(queue)) {}
  void queue() override { queue_(); }

 private:
  std::function<void()> queue_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(HostWork when) : late_(when == HostWork::late) {}

  [[nodiscard]] std::size_t work_left() const noexcept { return work_.left(); }
  [[nodiscard]] std::string description() const override { return "the host as a device"; }
  [[nodiscard]] Stream stream() noexcept override {
    return late_ ? static_cast<HostStream*>(&work_) : nullptr;
  }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* const memory = allocate_host(bytes);
    bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
    return memory;
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    bytes_ -= bytes;
    release_host(memory);
  }
  [[nodiscard]] std::size_t exchanged_bytes() const noexcept { return exchanged_bytes_; }
  [[nodiscard]] void* allocate_exchanged(std::size_t bytes) override {
    void* const memory = allocate(bytes);
    exchanged_bytes_ += bytes;
    return memory;
  }
  void release_exchanged(void* memory, std::size_t bytes) noexcept override {
    exchanged_bytes_ -= bytes;
    release(memory, bytes);
  }
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return peak_bytes_; }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override {
    void* memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0xFF, bytes);
    return memory;
  }
  /// As a device's, after all that may use it.
  void release_host(void* memory) noexcept override {
    work_.run_all();
    transfers_.run_all();
    std::free(memory);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    copy_on_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    copy_on_device(to, from, bytes);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    run_in(stream(), [=] { std::memmove(to, from, bytes); });
  }
  void clear(void* memory, std::size_t bytes) override {
    run_in(stream(), [=] { std::memset(memory, 0, bytes); });
  }
  void transfer_to_device(void* to, const void* from, std::size_t bytes) override {
    transfers_.push([=] { std::memcpy(to, from, bytes); });
  }
  void synchronize() override { work_.run_all(); }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<HostEvent>();
  }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override { return make_event(); }
  [[nodiscard]] double seconds_between(const Event& begin, const Event& end) override {
    const auto time = [](const Event& event) {
      return *static_cast<const HostEvent&>(event).reached;
    };
    return std::chrono::duration<double>(time(end) - time(begin)).count();
  }
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()> work) override {
    if (!late_) return std::make_unique<HostReplay>(std::move(work));
    return std::make_unique<HostReplay>([this, recording = work_.record(work)] {
      for (const std::function<void()>& each : recording) work_.push(each);
    });
  }
  [[nodiscard]] double time(const std::function<void()>& work) override {
    synchronize();
    const auto begin = std::chrono::steady_clock::now();
    work();
    synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void mark(Event& event, Queue queue) override {
    work_.must_not_record();
    auto& marked = static_cast<HostEvent&>(event);
    const auto reach = [reached = marked.reached] { *reached = std::chrono::steady_clock::now(); };
    if (queue == Queue::work) {
      run_in(stream(), reach);
    } else {
      transfers_.push(reach);
    }
    marked.queue = queue == Queue::work ? &work_ : &transfers_;
    marked.count = marked.queue->queued();
  }
  void queue_wait(Queue queue, const Event& event) override {
    work_.must_not_record();
    const auto wait = [marked = static_cast<const HostEvent&>(event)] { marked.wait(); };
    if (queue == Queue::work) {
      run_in(stream(), wait);
    } else {
      transfers_.push(wait);
    }
  }
  void wait(const Event& event) override { static_cast<const HostEvent&>(event).wait(); }
  /// A little later with every question.
  [[nodiscard]] bool has_reached(const Event& event) override {
    return static_cast<const HostEvent&>(event).advance();
  }
  [[nodiscard]] std::unique_ptr<Convolution> make_convolution(const ConvolutionShape& shape,
                                                              ConvolutionPasses passes) override;
  [[nodiscard]] std::string algorithm_library() const override { return "the host, loops 1"; }
  [[nodiscard]] std::string fastest_algorithm(const ConvolutionRequest& request) override {
    convolutions_.timed.push_back(request);
    return fmt::format("loop {}", request.shape.kernel);
  }
  void take_algorithms(AlgorithmChoices choices) override {
    convolutions_.taken = std::move(choices);
  }
  [[nodiscard]] const HostConvolutions& convolutions() const noexcept { return convolutions_; }

 private:
  bool late_;
  HostConvolutions convolutions_;
  HostQueue work_;
  HostQueue transfers_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t exchanged_bytes_ = 0;
};

class HostConvolution final : public Convolution {
 public:
  HostConvolution(HostDevice& device, const ConvolutionShape& shape)
      : device_(device),
        loops_(shape),
        workspace_bytes_(64 * (1 + static_cast<std::size_t>(shape.out_channels % 7))) {}

  /// Other convolutions have other sizes, as cuDNN's do.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return workspace_bytes_; }
  [[nodiscard]] DataType weight_gradient_type() const noexcept override {
    return loops_.weight_gradient_type();
  }
  void forward(const void* x, const void* weights, void* y, void* workspace) override {
    overwrite(workspace);
    run_in(device_.stream(), [=, loops = loops_] { loops.forward(x, weights, y); });
  }
  void backward_data(const void* dy, const void* weights, void* dx, void* workspace) override {
    overwrite(workspace);
    run_in(device_.stream(), [=, loops = loops_] { loops.backward_data(dy, weights, dx); });
  }
  void backward_weights(const void* x, const void* dy, void* dw, void* workspace) override {
    overwrite(workspace);
    run_in(device_.stream(), [=, loops = loops_] { loops.backward_weights(x, dy, dw); });
  }

 private:
  /// Fills the workspace with NaN, so that a memory plan that overlaps it with live values shows.
  void overwrite(void* workspace) const {
    run_in(device_.stream(),
           [=, bytes = workspace_bytes_] { std::memset(workspace, 0xff, bytes); });
  }

  HostDevice& device_;
  ConvolutionLoops loops_;
  std::size_t workspace_bytes_;
};

std::unique_ptr<Convolution> HostDevice::make_convolution(const ConvolutionShape& shape,
                                                          ConvolutionPasses passes) {
  convolutions_.made.emplace_back(shape, passes);
  return std::make_unique<HostConvolution>(*this, shape);
}

}  // namespace

std::unique_ptr<Device> make_host_device(HostWork when) {
  return std::make_unique<HostDevice>(when);
}

const HostConvolutions& convolutions(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).convolutions();
}

std::size_t exchanged_bytes(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).exchanged_bytes();
}

std::size_t work_left(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).work_left();
}

}  // namespace lockstep::cuda
