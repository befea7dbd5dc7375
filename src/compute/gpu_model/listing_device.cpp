#include "listing_device.hpp"

#include "../../engine/gpu/kernels/host/host_stream.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <boost/core/demangle.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep::gpu {
namespace {

/// "Apply" of "lockstep::gpu::(anonymous namespace)::Apply<__nv_bfloat16, true>".
std::string short_name(const std::type_info& functor) {
  std::string name = boost::core::demangle(functor.name());
  name.resize(std::min(name.size(), name.find('<')));
  const std::size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

class ListingStream final : public HostStream {
 public:
  void push(std::function<void()> /*work*/) override {}
  void push_kernel(const Kernel& kernel, std::function<void()> /*work*/) override {
    Launch launch{.kernel = short_name(kernel.functor)};
    if (kernel.bytes) launch.bytes = static_cast<double>(*kernel.bytes);
    add(std::move(launch));
  }
  void add(Launch launch) { launches_.push_back(std::move(launch)); }
  [[nodiscard]] std::vector<Launch> take() { return std::exchange(launches_, {}); }

 private:
  std::vector<Launch> launches_;
};

class ListedConvolution final : public Convolution {
 public:
  ListedConvolution(const ConvolutionShape& shape, ListingStream& stream)
      : shape_(shape), stream_(stream) {}
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  void forward(const void*, const void*, void*, void*) override { add(ConvolutionPass::forward); }
  void backward_data(const void*, const void*, void*, void*) override {
    add(ConvolutionPass::backward_data);
  }
  void backward_weights(const void*, const void*, void*, void*) override {
    add(ConvolutionPass::backward_weights);
  }

 private:
  void add(ConvolutionPass pass) {
    const ConvolutionRequest request{.shape = shape_, .pass = pass};
    stream_.add({.kernel = "convolution",
                 .operations = request.operations(),
                 .bytes = static_cast<double>(values() * size_of(shape_.type))});
  }
  /// Of the input, the output and the filters. A 1x1 filter skips pixels that its stride skips.
  [[nodiscard]] std::size_t values() const noexcept {
    const ConvolutionShape& s = shape_;
    const std::int64_t skipped = s.kernel == 1 && s.kernel_columns() == 1 ? s.stride * s.stride : 1;
    const std::int64_t in = s.batch * s.height * s.width * s.in_channels / skipped;
    const std::int64_t out = s.batch * s.out_height() * s.out_width() * s.out_channels;
    const std::int64_t filters =
        s.out_channels * s.kernel * s.kernel_columns() * s.channels_per_group();
    return static_cast<std::size_t>(in + out + filters);
  }

  ConvolutionShape shape_;
  ListingStream& stream_;
};

class ListedConvolutions final : public ConvolutionLibrary {
 public:
  explicit ListedConvolutions(ListingStream& stream) : stream_(stream) {}
  [[nodiscard]] std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                  ConvolutionPasses) override {
    return std::make_unique<ListedConvolution>(shape, stream_);
  }

 private:
  ListingStream& stream_;
};

class ReachedEvent final : public Event {};

class Listing final : public ListingDevice {
 public:
  [[nodiscard]] std::vector<Launch> take_launches() override { return stream_.take(); }
  [[nodiscard]] std::vector<std::vector<Launch>> take_timed() override {
    return std::exchange(timed_, {});
  }
  [[nodiscard]] std::string description() const override { return "no device"; }
  [[nodiscard]] Stream stream() noexcept override { return static_cast<HostStream*>(&stream_); }
  [[nodiscard]] Stream transfer_stream() noexcept override { return stream(); }
  [[nodiscard]] ConvolutionLibrary& convolutions() override { return convolutions_; }
  [[nodiscard]] JpegLibrary& jpeg_library() override {
    fail(ExitStatus::internal, "a list of kernels decodes no images; report this");
  }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* const memory = ::mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      fail(ExitStatus::internal, "cannot reserve {} bytes of addresses ({}); raise ulimit -v",
           bytes, std::strerror(errno));
    }
    bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
    return memory;
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    bytes_ -= bytes;
    ::munmap(memory, std::max<std::size_t>(bytes, 1));
  }
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return peak_bytes_; }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override {
    void* const memory = std::calloc(std::max<std::size_t>(bytes, 1), 1);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void release_host(void* memory) noexcept override { std::free(memory); }
  void copy_to_device(void*, const void*, std::size_t) override {}
  void copy_to_host(void*, const void*, std::size_t) override {}
  void copy_on_device(void*, const void*, std::size_t bytes) override {
    stream_.add({.kernel = "copy", .bytes = 2 * static_cast<double>(bytes)});
  }
  void clear(void*, std::size_t bytes) override {
    stream_.add({.kernel = "clear", .bytes = static_cast<double>(bytes)});
  }
  void transfer_to_device(void*, const void*, std::size_t) override {}
  void synchronize() override {}
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()>) override {
    fail(ExitStatus::internal, "nothing can be recorded (no device)");
  }
  [[nodiscard]] double time(const std::function<void()>& work) override {
    static_cast<void>(stream_.take());
    work();
    timed_.push_back(stream_.take());
    return 0;
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    return std::make_unique<ReachedEvent>();
  }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override { return make_event(); }
  [[nodiscard]] double seconds_between(const Event&, const Event&) override { return 0; }
  void mark(Event&, Queue) override {}
  void queue_wait(Queue, const Event&) override {}
  void wait(const Event&) override {}
  [[nodiscard]] bool has_reached(const Event&) override { return true; }

 private:
  ListingStream stream_;
  ListedConvolutions convolutions_{stream_};
  std::vector<std::vector<Launch>> timed_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace

std::shared_ptr<ListingDevice> make_listing_device() {
  return std::make_shared<Listing>();
}

}  // namespace lockstep::gpu
