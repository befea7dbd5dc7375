#include "nvjpeg_library.hpp"

#include "lockstep/core/error.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

namespace lockstep::gpu::cuda {
namespace {

/// Functions of the library, declared as in NVIDIA's documentation of nvJPEG. Its enumerations are
/// ints.
struct Functions {
  int (*get_property)(int property, int* value);
  int (*create)(int backend, void* device_allocator, void* pinned_allocator, unsigned flags,
                JpegHandle* handle);
  int (*destroy)(JpegHandle handle);
  int (*hardware_decoder_info)(JpegHandle handle, unsigned* engines,
                               unsigned* cores);  // may be null
  int (*state_create)(JpegHandle handle, JpegState* state);
  int (*state_destroy)(JpegState state);
  int (*decode_batched_initialize)(JpegHandle handle, JpegState state, int batch_size, int threads,
                                   int output);
  int (*decode_batched)(JpegHandle handle, JpegState state, const unsigned char* const* data,
                        const std::size_t* bytes, JpegPlanes* to, cudaStream_t stream);
  int (*stream_create)(JpegHandle handle, JpegStream* stream);
  int (*stream_destroy)(JpegStream stream);
  int (*stream_parse_header)(JpegHandle handle, const unsigned char* file, std::size_t bytes,
                             JpegStream stream);
  int (*decode_batched_supported)(JpegHandle handle, JpegStream stream, int* refused);
};

class LoadedLibrary final : public JpegLibrary {
 public:
  explicit LoadedLibrary(int device) : device_(device) {
    // Never closed: CUDA's libraries do not survive dlclose.
    const std::string name = fmt::format("libnvjpeg.so.{}", CUDART_VERSION / 1000);
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      fail(ExitStatus::usage,
           "--decode gpu needs nvJPEG ({}); install it with the CUDA toolkit (or NVIDIA's "
           "Python package of it, with its directory in LD_LIBRARY_PATH), or use --decode cpu",
           dlerror());
    }
    require("nvjpegGetProperty", functions_.get_property);
    require("nvjpegCreateEx", functions_.create);
    require("nvjpegDestroy", functions_.destroy);
    find("nvjpegGetHardwareDecoderInfo", functions_.hardware_decoder_info);
    require("nvjpegJpegStateCreate", functions_.state_create);
    require("nvjpegJpegStateDestroy", functions_.state_destroy);
    require("nvjpegDecodeBatchedInitialize", functions_.decode_batched_initialize);
    require("nvjpegDecodeBatched", functions_.decode_batched);
    require("nvjpegJpegStreamCreate", functions_.stream_create);
    require("nvjpegJpegStreamDestroy", functions_.stream_destroy);
    require("nvjpegJpegStreamParseHeader", functions_.stream_parse_header);
    require("nvjpegDecodeBatchedSupported", functions_.decode_batched_supported);
  }

  [[nodiscard]] std::string version() const override {
    int parts[3] = {};
    for (int part = 0; part < 3; ++part) (void)functions_.get_property(part, &parts[part]);
    return fmt::format("nvJPEG {}.{}.{}", parts[0], parts[1], parts[2]);
  }
  [[nodiscard]] JpegStatus create(JpegBackend backend, unsigned flags,
                                  JpegHandle* handle) override {
    return status(functions_.create(static_cast<int>(backend), nullptr, nullptr, flags, handle));
  }
  void destroy(JpegHandle handle) noexcept override { (void)functions_.destroy(handle); }
  [[nodiscard]] JpegStatus hardware_decoder_info(JpegHandle handle, unsigned* engines,
                                                 unsigned* cores_per_engine) override {
    if (functions_.hardware_decoder_info == nullptr) {
      return JpegStatus::implementation_not_supported;
    }
    return status(functions_.hardware_decoder_info(handle, engines, cores_per_engine));
  }
  [[nodiscard]] JpegStatus state_create(JpegHandle handle, JpegState* state) override {
    return status(functions_.state_create(handle, state));
  }
  void state_destroy(JpegState state) noexcept override { (void)functions_.state_destroy(state); }
  [[nodiscard]] JpegStatus decode_batched_initialize(JpegHandle handle, JpegState state,
                                                     int batch_size, int host_threads,
                                                     JpegOutput output) override {
    return status(functions_.decode_batched_initialize(handle, state, batch_size, host_threads,
                                                       static_cast<int>(output)));
  }
  [[nodiscard]] JpegStatus decode_batched(JpegHandle handle, JpegState state,
                                          const JpegFiles& files, JpegPlanes* to,
                                          Stream stream) override {
    return status(functions_.decode_batched(handle, state, files.data, files.bytes, to,
                                            static_cast<cudaStream_t>(stream)));
  }
  // Threads start with device 0, on which these would otherwise allocate.
  [[nodiscard]] JpegStatus stream_create(JpegHandle handle, JpegStream* stream) override {
    use_device();
    return status(functions_.stream_create(handle, stream));
  }
  void stream_destroy(JpegStream stream) noexcept override {
    use_device();
    (void)functions_.stream_destroy(stream);
  }
  [[nodiscard]] JpegStatus stream_parse_header(JpegHandle handle, const std::uint8_t* file,
                                               std::size_t bytes, JpegStream stream) override {
    use_device();
    return status(functions_.stream_parse_header(handle, file, bytes, stream));
  }
  [[nodiscard]] JpegStatus decode_batched_supported(JpegHandle handle, JpegStream stream,
                                                    int* refused) override {
    use_device();
    return status(functions_.decode_batched_supported(handle, stream, refused));
  }

 private:
  void use_device() const noexcept { (void)cudaSetDevice(device_); }
  static JpegStatus status(int code) noexcept { return static_cast<JpegStatus>(code); }
  template <typename Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  template <typename Function>
  void require(const char* name, Function& function) {
    find(name, function);
    if (function != nullptr) return;
    fail(ExitStatus::usage,
         "--decode gpu needs a newer nvJPEG (the one that was found has no {}); install that of "
         "CUDA {}, or use --decode cpu",
         name, CUDART_VERSION / 1000);
  }

  int device_;
  void* library_ = nullptr;
  Functions functions_{};
};

}  // namespace

std::unique_ptr<JpegLibrary> load_nvjpeg(int device) {
  return std::make_unique<LoadedLibrary>(device);
}

}  // namespace lockstep::gpu::cuda
