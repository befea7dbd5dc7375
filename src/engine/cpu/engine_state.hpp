#pragma once

#include "../graph_analysis.hpp"
#include "activation_pool.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/graph/graph.hpp"
#include "parameter_store.hpp"

#include <dnnl.hpp>

namespace lockstep::cpu {

/// State shared by an engine and its programs; it lives as long as the last of them.
struct EngineState {
  Graph graph;
  GraphAnalysis analysis;
  int threads;
  DataType activations;  ///< of values, their gradients and the working copies of weights
  ConvolutionChoices convolutions;
  SumOverRanks sum_over_ranks;  ///< for batch norms in training; empty: this rank only
  dnnl::engine engine;
  dnnl::stream stream;
  ParameterStore parameters;
  AlignedBuffer<float> running_statistics;
  ActivationPool pool;
  UnitExchange* exchange = nullptr;  ///< gathers and reduces units; null: none needed
  StepTimer* timer = nullptr;        ///< null: no timing
};

}  // namespace lockstep::cpu
