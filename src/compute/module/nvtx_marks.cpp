#include "nvtx_marks.hpp"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace lockstep::gpu::cuda {
namespace {

class NvtxMarks final : public PhaseMarks {
 public:
  NvtxMarks() : domain_(nvtxDomainCreateA("lockstep")) {}

  void begin_step(std::int64_t step) noexcept override {
    close_to(0);
    char name[32];
    std::snprintf(name, sizeof name, "step %lld", static_cast<long long>(step));
    push(name);
    in_step_ = true;
  }
  void enter(const char* name, bool outside) noexcept override {
    if (outside) in_step_ = false;
    close_to(in_step_ ? 1 : 0);
    push(name);
  }
  void start_bucket(int bucket) noexcept override {
    char name[32];
    std::snprintf(name, sizeof name, "bucket %d", bucket);
    const nvtxEventAttributes_t attributes = attributes_of(name);
    nvtxDomainMarkEx(domain_, &attributes);
  }

 private:
  static nvtxEventAttributes_t attributes_of(const char* name) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    return attributes;
  }
  void push(const char* name) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(name);
    nvtxDomainRangePushEx(domain_, &attributes);
    ++open_;
  }
  void close_to(int open) noexcept {
    for (; open_ > open; --open_) nvtxDomainRangePop(domain_);
  }

  nvtxDomainHandle_t domain_;
  int open_ = 0;          ///< nested ranges
  bool in_step_ = false;  ///< the outermost range is a step
};

}  // namespace

PhaseMarks& nvtx_marks() {
  static NvtxMarks marks;
  return marks;
}

}  // namespace lockstep::gpu::cuda
