#include "host_convolution_library.hpp"

#include "host_convolution.hpp"
#include "host_rules.hpp"
#include "host_work_stream.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace lockstep::gpu {
namespace {

class HostConvolution final : public Convolution {
 public:
  HostConvolution(WorkStream& stream, std::shared_ptr<HostMemory> memory,
                  const std::shared_ptr<LiveObjects>& live, const ConvolutionShape& shape,
                  const ConvolutionPasses& passes)
      : stream_(stream),
        memory_(std::move(memory)),
        live_(live),
        alive_(live),
        may_run_{passes.forward, passes.backward_data, passes.backward_weights},
        loops_(shape),
        workspace_bytes_(64 * (1 + static_cast<std::size_t>(shape.out_channels % 7))) {}

  /// The size differs between convolutions, as with cuDNN.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return workspace_bytes_; }
  void forward(const void* x, const void* weights, void* y, void* workspace) override {
    queue(0, workspace, [=](const ConvolutionLoops& loops) { loops.forward(x, weights, y); });
  }
  void backward_data(const void* dy, const void* weights, void* dx, void* workspace) override {
    queue(1, workspace,
          [=](const ConvolutionLoops& loops) { loops.backward_data(dy, weights, dx); });
  }
  void backward_weights(const void* x, const void* dy, void* dw, void* workspace) override {
    queue(2, workspace, [=](const ConvolutionLoops& loops) { loops.backward_weights(x, dy, dw); });
  }

 private:
  /// Also fills the workspace with NaN, so that a memory plan that overlaps it with live values
  /// shows. Replaying a pass of a destroyed convolution fails: its engine may have been compiled
  /// for it.
  template <typename Pass>
  void queue(std::size_t pass, void* workspace, const Pass& run) {
    if (!may_run_[pass]) throw std::logic_error("a convolution was not made for this pass");
    memory_->require_device(workspace, workspace_bytes_, "a convolution's workspace");
    stream_.push_pass(ran_[pass],
                      [=, live = live_, alive = &alive_, loops = loops_, bytes = workspace_bytes_] {
                        live->require(alive, "a convolution");
                        std::memset(workspace, 0xff, bytes);
                        run(loops);
                      });
  }

  WorkStream& stream_;
  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<LiveObjects> live_;
  Liveness alive_;
  std::array<bool, 3> may_run_;
  ConvolutionLoops loops_;
  std::size_t workspace_bytes_;
  std::array<bool, 3> ran_{};
};

}  // namespace

std::unique_ptr<Convolution> HostConvolutionLibrary::make(const ConvolutionShape& shape,
                                                          ConvolutionPasses passes) {
  stream_.capture.forbid("ConvolutionLibrary::make");
  asked_.made.emplace_back(shape, passes);
  return std::make_unique<HostConvolution>(stream_, memory_, live_, shape, passes);
}

std::string HostConvolutionLibrary::fastest(const ConvolutionRequest& request) {
  stream_.capture.forbid("ConvolutionLibrary::fastest");
  asked_.timed.push_back(request);
  return fmt::format("loop {}", request.shape.kernel);
}

}  // namespace lockstep::gpu
