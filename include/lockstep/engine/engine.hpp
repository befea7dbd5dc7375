#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/engine/engine_memory.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/engine/program.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// Owns a network's parameters, gradients and running statistics on one device, and compiles the
/// network. The arenas are in device memory; the host accesses them only by memory().
class Engine {
 public:
  virtual ~Engine() = default;

  [[nodiscard]] virtual std::string description()
      const = 0;  ///< "oneDNN 2.6.3, avx512_core_bf16, 2 threads"
  [[nodiscard]] virtual const Graph& graph() const noexcept = 0;
  [[nodiscard]] virtual InputFormat input_format() noexcept = 0;

  /// Starts to copy a batch of pixels for a later forward, concurrently with other work. At most
  /// two batches may be in flight.
  virtual void prefetch(const Batch&) {}
  /// Blocks until the pixels of the last forward have been copied, so that their memory may be
  /// reused while a device still computes.
  virtual void await_copy() {}
  /// Ends the copy of a batch that was prefetched, but is not going to be used.
  virtual void discard(const Batch&) {}

  [[nodiscard]] virtual EngineMemory& memory() noexcept = 0;
  /// The parameters and gradients, in memory(). The pointer keeps all of the engine's memory alive,
  /// the values of its programs too, because collectives may be in flight after an error.
  [[nodiscard]] virtual std::shared_ptr<const ParameterArena> arena() const noexcept = 0;
  /// All running statistics in host memory, concatenated in the order of Graph::statistics().
  [[nodiscard]] virtual std::span<float> running_statistics() noexcept = 0;

  /// Times every step that runs while `timer` wants times; a device then queues steps one by one.
  /// `timer` must outlive the engine's last step.
  virtual void set_step_timer(StepTimer& timer) = 0;
  /// Blocks until `timer` has received all steps that were run.
  virtual void report_steps() {}
  /// Seconds that a device needed for the forwards and backwards of training that it has ended
  /// since the last call, without its waits for other ranks; 0: not measured. Does not block.
  [[nodiscard]] virtual double take_device_seconds() { return 0; }

  /// Error(usage) if no program has these options; Error(internal) if the layout has units and the
  /// options have no exchange.
  [[nodiscard]] virtual std::unique_ptr<Program> compile(const ProgramOptions& options) = 0;
  [[nodiscard]] std::unique_ptr<Program> compile_training(std::int64_t batch_size,
                                                          UnitExchange* exchange = nullptr) {
    return compile({.batch_size = batch_size, .training = true, .exchange = exchange});
  }
  [[nodiscard]] std::unique_ptr<Program> compile_inference(std::int64_t batch_size,
                                                           UnitExchange* exchange = nullptr) {
    return compile({.batch_size = batch_size, .training = false, .exchange = exchange});
  }

  // The arena's functions.
  [[nodiscard]] const ArenaLayout& layout() const { return arena()->layout(); }
  [[nodiscard]] std::span<float> parameters() const { return arena()->parameters(); }
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) const {
    return arena()->held_unit(unit);
  }
  [[nodiscard]] std::span<float> gradients() const { return arena()->gradients(); }
  void to_plain(std::span<const float> view, ParameterId id, std::span<float> plain) const {
    arena()->to_plain(view, id, plain);
  }
  void from_plain(std::span<const float> plain, ParameterId id, std::span<float> view) const {
    arena()->from_plain(plain, id, view);
  }
};

}  // namespace lockstep
