#pragma once

#include "activation_pool.hpp"
#include "cpu_memory.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/graph/graph.hpp"
#include "onednn.hpp"

#include <dnnl.hpp>

#include <vector>

namespace lockstep::cpu {

/// State shared by an engine and its programs; it lives as long as the last of them.
struct EngineState {
  Graph graph;
  int threads;
  Recompute recompute;
  DataType activations;  ///< of values, their gradients and the working copies of weights
  ConvolutionChoices convolutions;
  SumOverRanks sum_over_ranks;  ///< for batch norms in training; empty: this rank only
  dnnl::engine engine;
  dnnl::stream stream;
  CpuMemory memory;
  ParameterArena arena;
  std::vector<Desc> formats;  ///< by parameter: of fp32 values in every arena
  AlignedBuffer<float> running_statistics;
  ActivationPool pool;
  StepTimer* timer = nullptr;  ///< null: no timing
};

}  // namespace lockstep::cpu
