#include "host_device.hpp"

#include "gpu/kernels/host/host_stream.hpp"
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

namespace lockstep::gpu {
namespace {

std::vector<float> to_floats(const void* values, std::size_t count, DataType type) {
  std::vector<float> result(count);
  convert(nullptr, values, type, result.data(), DataType::f32, count);
  return result;
}

class ConvolutionLoops final {
 public:
  explicit ConvolutionLoops(const ConvolutionShape& shape) : shape_(shape) {}

  // fp16 weight gradients are cast to the fp32 arena; others are written to it directly. Tests
  // cover both.
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
          const std::size_t first = first_seen(o);
          for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
            sum += in[pixel + first + static_cast<std::size_t>(i)] * w[weight_at(o, tap, i)];
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
            const std::size_t first = first_seen(o);
            for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
              in[pixel + first + static_cast<std::size_t>(i)] += g * w[weight_at(o, tap, i)];
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
          for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
            w[weight_at(o, tap, i)] += g * in[pixel + first_seen(o) + static_cast<std::size_t>(i)];
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
    return static_cast<std::size_t>(shape_.out_channels * shape_.kernel * shape_.kernel_columns() *
                                    shape_.channels_per_group());
  }
  /// The first input channel of an output channel's group.
  [[nodiscard]] std::size_t first_seen(std::int64_t o) const {
    return static_cast<std::size_t>(o / (shape_.out_channels / shape_.groups) *
                                    shape_.channels_per_group());
  }
  [[nodiscard]] std::size_t weight_at(std::int64_t o, std::int64_t tap, std::int64_t i) const {
    return static_cast<std::size_t>(
        (o * shape_.kernel * shape_.kernel_columns() + tap) * shape_.channels_per_group() + i);
  }
  /// Calls visit(input pixel's first value, tap) for each tap of an output position that is not
  /// padding.
  template <typename Visit>
  void for_taps(std::int64_t position, Visit&& visit) const {
    const std::int64_t ow = position % shape_.out_width();
    const std::int64_t oh = position / shape_.out_width() % shape_.out_height();
    const std::int64_t n = position / shape_.out_width() / shape_.out_height();
    for (std::int64_t kh = 0; kh < shape_.kernel; ++kh) {
      for (std::int64_t kw = 0; kw < shape_.kernel_columns(); ++kw) {
        const std::int64_t h = oh * shape_.stride - shape_.padding + kh;
        const std::int64_t w = ow * shape_.stride - shape_.padding + kw;
        if (h < 0 || w < 0 || h >= shape_.height || w >= shape_.width) continue;
        visit(static_cast<std::size_t>(((n * shape_.height + h) * shape_.width + w) *
                                       shape_.in_channels),
              kh * shape_.kernel_columns() + kw);
      }
    }
  }

  ConvolutionShape shape_;
};

/// Queued work, which runs only as far as a caller waits.
class LateQueue final {
 public:
  void push(std::function<void()> work) { pending_.push_back(std::move(work)); }
  [[nodiscard]] std::size_t queued() const noexcept { return begun_ + pending_.size(); }
  [[nodiscard]] std::size_t left() const noexcept { return pending_.size(); }
  void run_until(std::size_t count) {
    while (begun_ < count) {
      const std::function<void()> next = std::move(pending_.front());
      pending_.pop_front();
      ++begun_;
      next();
    }
  }
  void run_all() { run_until(queued()); }
  /// Runs one operation, unless `count` operations have run already; returns whether they had.
  [[nodiscard]] bool advance_to(std::size_t count) {
    if (begun_ >= count) return true;
    run_until(begun_ + 1);
    return false;
  }

 private:
  std::deque<std::function<void()>> pending_;
  std::size_t begun_ = 0;
};

class LateQueues final : public HostQueues {
 public:
  explicit LateQueues(HostWork when) : late_(when == HostWork::late) {}

  void push(Device::Queue queue, std::function<void()> work) override {
    if (queue == Device::Queue::work && !late_) return work();
    of(queue).push(std::move(work));
  }
  [[nodiscard]] std::shared_ptr<HostPoint> mark(Device::Queue queue) override {
    return std::make_shared<Point>(of(queue));
  }
  void wait(Device::Queue queue, std::shared_ptr<HostPoint> point) override {
    push(queue, [point = std::move(point)] { point->wait(); });
  }
  [[nodiscard]] bool runs_at_once() const noexcept override { return !late_; }
  [[nodiscard]] std::size_t left() const noexcept override { return work_.left(); }
  void finish(Device::Queue queue) override { of(queue).run_all(); }

 private:
  class Point final : public HostPoint {
   public:
    explicit Point(LateQueue& queue) : queue_(queue), count_(queue.queued()) {}
    void wait() override { queue_.run_until(count_); }
    [[nodiscard]] bool reached() override { return queue_.advance_to(count_); }

   private:
    LateQueue& queue_;
    std::size_t count_;
  };
  [[nodiscard]] LateQueue& of(Device::Queue queue) noexcept {
    return queue == Device::Queue::work ? work_ : transfers_;
  }

  bool late_;
  LateQueue work_;
  LateQueue transfers_;
};

/// The queue of transfers as a stream.
class TransferStream final : public HostStream {
 public:
  explicit TransferStream(HostQueues& queues) : queues_(queues) {}
  void push(std::function<void()> work) override {
    queues_.push(Device::Queue::transfers, std::move(work));
  }

 private:
  HostQueues& queues_;
};

/// The stream of kernels: pushes to the work queue, or to a recording.
class WorkStream final : public HostStream {
 public:
  explicit WorkStream(HostQueues& queues) : queues_(queues) {}
  void push(std::function<void()> work) override {
    if (recording_ != nullptr) return recording_->push_back(std::move(work));
    queues_.push(Device::Queue::work, std::move(work));
  }
  using Recording = std::vector<std::function<void()>>;
  [[nodiscard]] Recording record(const std::function<void()>& work) {
    must_not_record();
    Recording recording;
    recording_ = &recording;
    work();
    recording_ = nullptr;
    return recording;
  }
  /// A device refuses these during a recording too.
  void must_not_record() const {
    if (recording_ != nullptr) {
      throw std::logic_error("a wait, a mark or an allocation in a recording");
    }
  }

 private:
  HostQueues& queues_;
  Recording* recording_ = nullptr;
};

struct HostEvent final : Event {
  std::shared_ptr<HostPoint> point;  ///< null: never marked
  /// When the queue reached it; null: not a timed event.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
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
  explicit HostDevice(std::shared_ptr<HostQueues> queues)
      : queues_(std::move(queues)), stream_(*queues_), transfer_stream_(*queues_) {}

  [[nodiscard]] std::size_t work_left() const noexcept { return queues_->left(); }
  [[nodiscard]] std::string description() const override { return "the host as a device"; }
  [[nodiscard]] Stream stream() noexcept override {
    return queues_->runs_at_once() ? nullptr : static_cast<HostStream*>(&stream_);
  }
  [[nodiscard]] Stream transfer_stream() noexcept override {
    return static_cast<HostStream*>(&transfer_stream_);
  }
  [[nodiscard]] HostJpegLibrary& jpeg_library() override { return jpeg_library_; }
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
    stream_.must_not_record();
    void* memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0xFF, bytes);
    return memory;
  }
  /// Like cudaFreeHost, waits for all work that may use the memory.
  void release_host(void* memory) noexcept override {
    queues_->finish(Queue::work);
    queues_->finish(Queue::transfers);
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
    queues_->push(Queue::transfers, [=] { std::memcpy(to, from, bytes); });
  }
  void synchronize() override {
    stream_.must_not_record();
    queues_->finish(Queue::work);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<HostEvent>();
  }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override {
    auto event = std::make_unique<HostEvent>();
    event->time = std::make_shared<std::chrono::steady_clock::time_point>();
    return event;
  }
  [[nodiscard]] double seconds_between(const Event& begin, const Event& end) override {
    const auto time = [](const Event& event) {
      const auto& timed = static_cast<const HostEvent&>(event).time;
      if (timed == nullptr) throw std::logic_error("the time of an event that is not timed");
      return *timed;
    };
    return std::chrono::duration<double>(time(end) - time(begin)).count();
  }
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()> work) override {
    if (queues_->runs_at_once()) return std::make_unique<HostReplay>(std::move(work));
    return std::make_unique<HostReplay>([this, recording = stream_.record(work)] {
      for (const std::function<void()>& each : recording) stream_.push(each);
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
    stream_.must_not_record();
    auto& marked = static_cast<HostEvent&>(event);
    if (marked.time != nullptr) {
      queues_->push(queue, [time = marked.time] { *time = std::chrono::steady_clock::now(); });
    }
    marked.point = queues_->mark(queue);
  }
  void queue_wait(Queue queue, const Event& event) override {
    stream_.must_not_record();
    const auto& point = static_cast<const HostEvent&>(event).point;
    if (point != nullptr) queues_->wait(queue, point);
  }
  void wait(const Event& event) override {
    stream_.must_not_record();
    const auto& point = static_cast<const HostEvent&>(event).point;
    if (point != nullptr) point->wait();
  }
  /// Each query also runs one operation.
  [[nodiscard]] bool has_reached(const Event& event) override {
    stream_.must_not_record();
    const auto& point = static_cast<const HostEvent&>(event).point;
    return point == nullptr || point->reached();
  }
  [[nodiscard]] std::unique_ptr<Convolution> make_convolution(const ConvolutionShape& shape,
                                                              ConvolutionPasses passes) override;
  [[nodiscard]] std::string algorithm_library() const override { return "the host, loops 1"; }
  [[nodiscard]] std::string fastest_algorithm(const ConvolutionRequest& request) override {
    convolutions_.timed.push_back(request);
    return fmt::format("loop {}", request.shape.kernel);
  }
  void set_algorithms(AlgorithmChoices choices) override {
    convolutions_.taken = std::move(choices);
  }
  [[nodiscard]] const HostConvolutions& convolutions() const noexcept { return convolutions_; }

 private:
  std::shared_ptr<HostQueues> queues_;
  WorkStream stream_;
  TransferStream transfer_stream_;
  HostJpegLibrary jpeg_library_;
  HostConvolutions convolutions_;
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

  /// The size differs between convolutions, as with cuDNN.
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
  return make_host_device(std::make_shared<LateQueues>(when));
}
std::unique_ptr<Device> make_host_device(std::shared_ptr<HostQueues> queues) {
  return std::make_unique<HostDevice>(std::move(queues));
}

const HostConvolutions& convolutions(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).convolutions();
}

std::size_t exchanged_bytes(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).exchanged_bytes();
}

HostJpegLibrary& jpeg_library(Device& host_device) {
  return dynamic_cast<HostDevice&>(host_device).jpeg_library();
}

std::size_t work_left(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).work_left();
}

}  // namespace lockstep::gpu
