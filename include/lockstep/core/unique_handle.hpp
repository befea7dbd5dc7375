#pragma once

#include <utility>

namespace lockstep {

/// Owner of one C handle. `Traits` defines `using Handle`, `static Handle null()`, and
/// `static void destroy(Handle) noexcept`, which logs instead of throwing.
template <typename Traits>
class UniqueHandle final {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  UniqueHandle(UniqueHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, Traits::null())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, Traits::null());
    }
    return *this;
  }
  ~UniqueHandle() { reset(); }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != Traits::null(); }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::null()); }
  void reset() noexcept {
    if (handle_ != Traits::null()) Traits::destroy(std::exchange(handle_, Traits::null()));
  }

 private:
  Handle handle_ = Traits::null();
};

}  // namespace lockstep
