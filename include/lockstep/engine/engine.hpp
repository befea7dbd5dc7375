#pragma once

#include "lockstep/core/host_memory.hpp"
#include "lockstep/core/pixel_cut.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/cast_buffer.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// How a batch of images lies in memory for this engine, and whether it takes the network's values
/// or stored pixels, which it crops, mirrors, resamples and normalises itself.
enum class ImageLayout { nchw, nhwc };
enum class ImageContent { values, pixels };
struct InputFormat {
  ImageLayout layout = ImageLayout::nchw;
  ImageContent content = ImageContent::values;
  HostMemory* memory = nullptr;  ///< where pixels and labels should lie; null: anywhere
};

/// A batch as it is stored, in memory of InputFormat::memory.
struct PixelImages {
  const std::uint8_t* data =
      nullptr;  ///< image i, (height, width, C), begins at i * height * width * C
  std::int32_t height = 0;
  std::int32_t width = 0;
  const PixelCut* cuts = nullptr;  ///< (N,)
  const float* values = nullptr;   ///< (C, 256): what each pixel value becomes
};

/// One micro-batch in host memory, in the engine's input format: fp32 images (N, C, H, W in that
/// layout), or pixels in their place where the engine takes them, and labels (N,). Aligned to 64
/// bytes and alive until the program's metrics() are there.
struct Batch {
  const float* images = nullptr;
  const std::int32_t* labels = nullptr;
  std::int64_t size = 0;
  PixelImages pixels = {};
};

/// Sums over the samples of a batch.
struct BatchMetrics {
  double loss = 0;  ///< sum of the samples' losses
  std::int64_t top1 = 0;
  std::int64_t top5 =
      0;  ///< hits among the five largest logits (or all, if there are fewer classes)
  std::int64_t samples = 0;
};

/// Told, in backward, as the gradient arena fills; where primitives run one by one after each of
/// them, so that communication can also move on where no new gradients are there.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  /// Gradients in [0, filled) of the arena are final for this micro-step. Never decreases.
  virtual void gradients_ready(std::size_t filled) = 0;
  /// Where it needs to be told as soon as that much is filled, ascending; in between an engine may
  /// leave it out.
  [[nodiscard]] virtual std::span<const std::size_t> boundaries() const noexcept { return {}; }
};

/// What one step of a program's list took.
struct StepTime {
  std::string name;  ///< "weight gradient of layer1.0.conv2"
  double seconds = 0;
};

/// Is told what each step of a program took, while it asks.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  [[nodiscard]] virtual bool wants() const noexcept = 0;
  /// Nanoseconds of the steady clock, on a device when it computed.
  virtual void took(std::string_view step, std::int64_t begin, std::int64_t end) = 0;
};

/// A network compiled for one batch size and for training or inference: a flat list of bound
/// primitives. Programs of one engine share its parameters and its activation memory, so one runs
/// at a time, and neither running nor compiling another may come between forward and backward.
/// Nothing is allocated or decided in a call.
class Program {
 public:
  virtual ~Program() = default;
  [[nodiscard]] virtual std::int64_t batch_size() const noexcept = 0;

  /// Training: batch statistics, loss and metrics of all batch_size() samples.
  /// Inference: running statistics; `batch.size` may be smaller than batch_size(), the rest of the
  /// buffer is then ignored in the metrics (it must be finite). A device may still be computing
  /// when it returns. On one, metrics() of the last batch must have been asked for.
  virtual void forward(const Batch& batch) = 0;
  /// Of the last forward, once it has ended.
  [[nodiscard]] virtual BatchMetrics metrics() = 0;

  /// Training only, after forward: d(loss_scale * sum of losses)/d(parameter) into the gradient
  /// arena, overwritten, or added where `accumulate`. The trainer passes loss_scale = 1 / B.
  struct BackwardOptions {
    float loss_scale = 1.0F;
    bool accumulate = false;
  };
  virtual void backward(const BackwardOptions& options, BackwardObserver& observer) = 0;

  /// Batch statistics of the last training forward, in the order and extents of
  /// Graph::statistics(): mean and unbiased variance of each batch norm, concatenated.
  [[nodiscard]] virtual std::span<const float> batch_statistics() = 0;
  /// Logits of the last forward, plain (N, classes).
  [[nodiscard]] virtual std::span<const float> logits() = 0;
  /// Training only: one forward and backward with each step timed by itself, in their order. Waits
  /// after each, so that the whole takes longer than it would.
  [[nodiscard]] virtual std::vector<StepTime> time_steps(const Batch& batch) = 0;
  /// Bytes of activations, their gradients and scratch memory this program uses.
  [[nodiscard]] virtual std::size_t activation_bytes() const noexcept = 0;
};

/// Values in an engine's memory.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  [[nodiscard]] virtual std::span<float> values() noexcept = 0;
};

/// Owns a network's parameters, gradients and running statistics on one device, and compiles it.
/// The arenas lie in that device's memory, which the host reaches by read() and write() only.
class Engine {
 public:
  virtual ~Engine() = default;

  [[nodiscard]] virtual std::string description()
      const = 0;  ///< "oneDNN 2.6.3, avx512_core_bf16, 2 threads"
  [[nodiscard]] virtual const Graph& graph() const noexcept = 0;
  [[nodiscard]] virtual InputFormat input_format() noexcept = 0;

  /// Begins to bring in a batch of pixels that a later forward takes, beside the work under way.
  /// Two may be on their way.
  virtual void prefetch(const Batch&) {}

  /// Where each parameter lies in the arenas. Backward fills the gradient arena upward from 0: the
  /// last layer's parameters come first.
  [[nodiscard]] virtual const ArenaLayout& layout() const noexcept = 0;
  /// layout().size() values, in the engine's own layouts, padding zero; empty where the engine does
  /// not hold them, or not in fp32.
  [[nodiscard]] virtual std::span<float> parameters() noexcept = 0;
  /// Where it holds them as UnitOptions::parameters of 16 bits say, a unit's; else empty.
  [[nodiscard]] virtual std::span<std::byte> held_unit(std::size_t unit) noexcept = 0;
  /// layout().size() values, unless the engine does not hold them, and tail_size more; the tail is
  /// the trainer's (see tail_bucket).
  [[nodiscard]] virtual std::span<float> gradients() noexcept = 0;
  /// Keeps the three above for as long as it is held, past the engine's end, as collectives under
  /// way may need them after an error; null where the engine cannot.
  [[nodiscard]] virtual std::shared_ptr<const void> arenas() const noexcept { return nullptr; }
  /// All running statistics, concatenated in the order of Graph::statistics(); in host memory.
  [[nodiscard]] virtual std::span<float> running_statistics() noexcept = 0;

  /// Copies between the device's memory and the host's, of equal sizes, after all work that was
  /// begun before. The host's side may be used again when it returns.
  virtual void read(std::span<const float> arena, std::span<float> host) = 0;
  virtual void write(std::span<const float> host, std::span<float> arena) = 0;
  /// As write, but only queued: the host's side stays as it is until a later read() returns.
  virtual void queue_write(std::span<const float> host, std::span<float> arena) {
    write(host, arena);
  }
  /// As read, but only queued: the host's side, in memory of InputFormat::memory, is there once
  /// has_read(). One at a time.
  virtual void queue_read(std::span<const float> arena, std::span<float> host) {
    read(arena, host);
  }
  [[nodiscard]] virtual bool has_read() { return true; }
  /// Whether what is called is only queued, so that a forward may be asked for behind an update
  /// before that is known to have been made.
  [[nodiscard]] virtual bool queues() const noexcept { return false; }

  /// Between a parameter's view of an arena, in host memory (of parameters, gradients or an
  /// optimizer's slot), and torchvision's plain layout. Thread-safe, so that a checkpoint can be
  /// written meanwhile.
  virtual void to_plain(std::span<const float> view, ParameterId id,
                        std::span<float> plain) const = 0;
  virtual void from_plain(std::span<const float> plain, ParameterId id,
                          std::span<float> view) const = 0;

  /// to += from, both in its memory.
  virtual void add(std::span<const float> from, std::span<float> to) = 0;
  /// `count` more values in its memory, zero.
  [[nodiscard]] virtual std::shared_ptr<ArenaMemory> allocate(std::size_t count) = 0;

  /// The most memory of a device of its own that was ever in use; 0 where it is the host's.
  [[nodiscard]] virtual std::size_t peak_device_bytes() const noexcept { return 0; }

  /// Rounds values to bf16 or fp16, both sides in its memory.
  virtual void cast(std::span<const float> values, Precision type, std::uint16_t* to) = 0;
  /// For `count` gradients that are reduced as bf16 or fp16.
  [[nodiscard]] virtual std::shared_ptr<CastBuffer> make_cast_buffer(Precision type,
                                                                     std::size_t count) = 0;

  /// What brings units from and to other ranks, for all that is compiled from now on and outlived
  /// by it.
  virtual void set_exchange(UnitExchange& exchange) = 0;

  /// Times every step that is run while `timer` asks for it; a device then queues them one by one.
  /// `timer` outlives the engine's last step.
  virtual void set_step_timer(StepTimer& timer) = 0;
  /// Until `timer` has been told of all steps that were run.
  virtual void report_steps() {}

  [[nodiscard]] virtual std::unique_ptr<Program> compile_training(std::int64_t batch_size) = 0;
  [[nodiscard]] virtual std::unique_ptr<Program> compile_inference(std::int64_t batch_size) = 0;
};

}  // namespace lockstep
