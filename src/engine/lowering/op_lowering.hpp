#pragma once

#include "lowering.hpp"

#include <memory>

namespace lockstep {

/// For the file of an op alone, which defines make_lowering(op, context) in the engine's namespace,
/// and ends with an explicit instantiation of LowerOp.
template <typename Builder, typename T>
std::unique_ptr<Lowering<Builder>> LowerOp<Builder, T>::make(
    const T& op, const LoweringContext<Builder>& context) {
  return make_lowering(op, context);
}

}  // namespace lockstep
