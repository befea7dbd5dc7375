#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep {

template <typename Signature>
class FunctionRef;

/// Non-owning reference to a callable, for callbacks during a call. Never allocates.
template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> final {
 public:
  template <typename Callable, typename = std::enable_if_t<
                                   !std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>>>
  FunctionRef(Callable&& callable) noexcept  // NOLINT(google-explicit-constructor): as a reference
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Arguments>(arguments)...);
        }) {}
  Result operator()(Arguments... arguments) const {
    return call_(object_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace lockstep
