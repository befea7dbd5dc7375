#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"

#include <cstdio>

namespace lockstep {

/// Whether the CPU engine computes in bf16 on this processor; prints the reason if not.
inline bool computes_bf16() {
  static const bool result = [] {
    const ImageShape image{.channels = 1, .height = 4, .width = 4};
    const Graph graph = make_model("mlp", {.image = image, .classes = 2, .width = 8});
    try {
      static_cast<void>(make_cpu_engine(graph, {.precision = Precision::bf16}));
      return true;
    } catch (const Error& error) {
      std::printf("not tested: %s\n", error.what());
      return false;
    }
  }();
  return result;
}

}  // namespace lockstep
