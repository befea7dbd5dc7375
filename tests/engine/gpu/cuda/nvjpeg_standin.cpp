#include <cuda_runtime.h>

// A library in nvJPEG's place for nvjpeg_library_test: its calls fail unless the thread's device is
// that of the first one.

namespace {

constexpr int internal_error = 8;  // NVJPEG_STATUS_INTERNAL_ERROR
int first_device = -1;

int on_first_device() {
  int device = -1;
  (void)cudaGetDevice(&device);
  return device == first_device ? 0 : internal_error;
}

}  // namespace

extern "C" {

int nvjpegGetProperty(int part, int* value) {
  *value = part;
  return 0;
}
int nvjpegCreateEx(int, void*, void*, unsigned, void** handle) {
  *handle = &first_device;
  return static_cast<int>(cudaGetDevice(&first_device));
}
int nvjpegDestroy(void*) {
  return on_first_device();
}
int nvjpegJpegStateCreate(void*, void**) {
  return on_first_device();
}
int nvjpegJpegStateDestroy(void*) {
  return on_first_device();
}
int nvjpegDecodeBatchedInitialize(void*, void*, int, int, int) {
  return on_first_device();
}
int nvjpegDecodeBatched(void*, void*, const unsigned char* const*, const unsigned long*, void*,
                        void*) {
  return on_first_device();
}
int nvjpegJpegStreamCreate(void*, void**) {
  return on_first_device();
}
int nvjpegJpegStreamDestroy(void*) {
  return on_first_device();
}
int nvjpegJpegStreamParseHeader(void*, const unsigned char*, unsigned long, void*) {
  return on_first_device();
}
int nvjpegDecodeBatchedSupported(void*, void*, int* refused) {
  *refused = 0;
  return on_first_device();
}
}
