// A library that NVTX loads instead of a profiler (NVTX_INJECTION64_PATH). Records the calls as
// lines of text.
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string& lines() {
  static std::string text;
  return text;
}

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  lines() += std::string("domain ") + name + "\n";
  return reinterpret_cast<nvtxDomainHandle_t>(&lines());
}
int NVTX_API push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  lines() += std::string("begin ") + attributes->message.ascii + "\n";
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t /*domain*/) {
  lines() += "end\n";
  return 0;
}
void NVTX_API mark(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* attributes) {
  lines() += std::string("mark ") + attributes->message.ascii + "\n";
}

template <typename Function>
NvtxFunctionPointer plain(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* profiler_lines() {
  return lines().c_str();
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = plain(create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = plain(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = plain(pop);
  *table[NVTX_CBID_CORE2_DomainMarkEx] = plain(mark);
  return 1;
}
