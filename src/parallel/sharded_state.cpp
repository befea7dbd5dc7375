#include "broadcast_arena.hpp"
#include "element_precision.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_plan.hpp"
#include "register_memory.hpp"
#include "unit_reducer.hpp"

#include <cassert>
#include <chrono>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class ShardedState final : public ParallelState, private UnitExchange {
 public:
  ShardedState(Engine& engine, const ShardComms& comms, const ShardingOptions& options)
      : engine_(engine),
        comms_(comms),
        engine_memory_(engine.arena()),
        plan_(engine.layout(), comms.group.rank(), comms.group.size()),
        holds_fp32_(!engine.parameters().empty()),
        holds_gradients_(engine.arena()->holds_gradients()),
        gradients_(engine.memory().allocate(plan_.local().size())),
        tail_(engine.memory().allocate(options.tail_size)),
        parameter_type_(options.parameters),
        unit_reducer_(engine, plan_, comms.group, comms.replicas,
                      {.type = options.reduce_dtype, .all_at_once = holds_gradients_}),
        host_shard_(std::ranges::max(plan_.local().units, {}, &ArenaUnit::size).size()),
        gathers_(plan_.units()),
        reductions_(plan_.units()) {
    if (options.accumulates && !holds_gradients_) {
      addends_ = engine.memory().allocate(plan_.local().size());
    }
    if (!holds_fp32_) parameters_ = engine.memory().allocate(plan_.local().size());
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
      const ArenaUnit& local = plan_.local().units[unit];
      // Shift the whole arena's span so that this rank's own offsets index its values.
      const std::span<float> parameters =
          holds_fp32_ ? engine.parameters().subspan(plan_.begin_in_unsharded(unit) - local.begin)
                      : parameters_->values();
      update_ranges_.push_back({.begin = local.begin, .end = local.end, .parameters = parameters});
    }
    register_memory();
  }
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return plan_.local(); }
  [[nodiscard]] std::span<float> gradients() noexcept override { return gradients_->values(); }

  [[nodiscard]] std::span<const ParameterRange> update_ranges() const noexcept override {
    return update_ranges_;
  }

  [[nodiscard]] UnitExchange& exchange() noexcept override { return *this; }
  [[nodiscard]] std::span<const std::size_t> bucket_ends() const noexcept override { return {}; }
  [[nodiscard]] StepEnd step_end() const noexcept override {
    return {.units = plan_.units(),
            .awaits_reductions = holds_gradients_,
            .has_replicas = has_replicas(),
            .gathers = engine_.arena()->holds_parameters()};
  }
  [[nodiscard]] ParameterRange range_of(std::size_t unit) const noexcept override {
    return update_ranges_[unit];
  }

  void begin_step([[maybe_unused]] StepSync sync) override { assert(sync == StepSync::gradients); }
  void begin_micro_step(bool first) override { first_ = first; }

  void start_tail(std::span<const float> tail) override {
    engine_.memory().queue_write(tail, tail_->values());
    tail_request_ =
        comms_.all.start_all_reduce_buffer(buffer_of(tail_->values(), tail_), ReduceOp::sum);
  }
  void await_tail() override {
    comms_.all.wait(tail_request_);
    waited_ = 0;  // the caller times the end of a step; this counts only waits inside programs
  }
  void await_replica_reduction(std::size_t unit) override {
    comms_.replicas->wait(reductions_[unit].over_replicas);
    unit_reducer_.end_over_replicas(unit, gradients_);
  }
  void gather_updated(std::size_t unit) override { all_gather_held(unit); }

  [[nodiscard]] double take_waited_seconds() override { return std::exchange(waited_, 0); }
  [[nodiscard]] std::span<const float> reduced_tail() noexcept override { return tail_->values(); }
  void queue_read_tail(std::span<float> tail) override {
    engine_.memory().queue_read(tail_->values(), tail);
  }
  void await_read_tail() override {
    await([this] { return engine_.memory().has_read(); });
  }

  [[nodiscard]] SumOverRanks sum_over_shards() override {
    return [this](std::span<double> values) { comms_.group_host.all_reduce(values); };
  }

  [[nodiscard]] StateBytes bytes(std::size_t slots) override {
    const std::size_t addends = addends_ ? addends_->values().size_bytes() : 0;
    const std::size_t local = gradients().size_bytes();
    std::size_t held = holds_fp32_ ? engine_.parameters().size_bytes() : local;
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) held += engine_.held_unit(unit).size();
    return {.parameters = held,
            .gradients = engine_.gradients().size_bytes() + local + addends + unit_reducer_.bytes(),
            .optimizer = slots * local,
            .copy = is_rank_0() ? bytes_to_save(engine_.layout(), slots) : 0};
  }

  [[nodiscard]] std::span<const ArenaUnit> units() const noexcept override {
    return plan_.unsharded().units;
  }
  void scatter_parameters(std::size_t unit, std::span<float> unsharded) override {
    if (holds_fp32_) {
      return broadcast_arena(engine_, comms_.group_host, unsharded,
                             units()[unit].in(engine_.parameters()));
    }
    await_gathers();  // all-gathers into the engine's 16-bit units may still be in flight
    scatter(unit, unsharded, parameters_->values());
    all_gather_held(unit);
  }
  // Every group scatters, but only rank 0's group has the values; the broadcast over the replicas
  // then gives each rank its shard.
  void scatter(std::size_t unit, std::span<float> unsharded, std::span<float> local) override {
    const ArenaUnit& kept = plan_.local().units[unit];
    std::vector<float> placeholder;
    const auto part = std::span(host_shard_).first(kept.size());
    comms_.group_host.scatter(std::span<const float>(at_root(unit, unsharded, placeholder)), part);
    if (comms_.replicas_host != nullptr) comms_.replicas_host->broadcast(part);
    engine_.memory().write(part, kept.in(local));
  }
  void gather_parameters(std::size_t unit, std::span<float> unsharded) override {
    await_gathers();
    gather_shards(parameter_shard(unit), unsharded);
  }
  void gather(std::size_t unit, std::span<const float> local, std::span<float> unsharded) override {
    gather_shards(plan_.local().units[unit].in(local), unsharded);
  }

  void await_gathers() override {
    for (Request& request : gathers_) comms_.group.wait(request);
    comms_.group.synchronize();
  }

 private:
  struct Reduction {
    Request request;
    bool adds = false;  ///< the sum is added to that of earlier micro-steps
    Request over_replicas = {};
  };

  /// Registers all communication memory except that inside the values of programs.
  void register_memory() {
    if (holds_fp32_) register_arena(comms_.group, engine_, engine_.parameters());
    if (const auto first = engine_.held_unit(0); !first.empty()) {
      const auto last = engine_.held_unit(plan_.units() - 1);
      register_arena(comms_.group, engine_, std::span(first.data(), last.data() + last.size()));
    }
    if (holds_gradients_) register_arena(comms_.group, engine_, engine_.gradients());
    for (const auto& local : {parameters_, gradients_, addends_})
      register_values(comms_.group, local);
    if (comms_.replicas != nullptr) register_values(*comms_.replicas, gradients_);
    register_values(comms_.all, tail_);
  }
  /// Whether this is rank 0's shard group.
  [[nodiscard]] bool in_first_group() const noexcept {
    return comms_.replicas_host == nullptr || comms_.replicas_host->rank() == 0;
  }
  [[nodiscard]] bool is_rank_0() const noexcept {
    return in_first_group() && comms_.group_host.rank() == 0;
  }
  void gather_shards(std::span<const float> shard, std::span<float> unsharded) {
    if (!in_first_group()) return;
    const auto part = std::span(host_shard_).first(shard.size());
    engine_.memory().read(shard, part);
    comms_.group_host.gather(std::span<const float>(part), unsharded);
  }
  /// Send buffer of a scatter: the unit's values on rank 0; `placeholder`, with any values, on the
  /// roots of other groups.
  [[nodiscard]] std::span<float> at_root(std::size_t unit, std::span<float> unsharded,
                                         std::vector<float>& placeholder) const {
    if (!unsharded.empty()) return unsharded;
    if (comms_.group_host.rank() == 0) placeholder.resize(units()[unit].size());
    return placeholder;
  }
  [[nodiscard]] std::span<const float> parameter_shard(std::size_t unit) const {
    const ParameterRange& range = update_ranges_[unit];
    return range.parameters.subspan(range.begin, range.end - range.begin);
  }
  [[nodiscard]] std::span<float> local_shard(ArenaMemory& memory, std::size_t unit) const {
    return plan_.local().units[unit].in(memory.values());
  }

  /// All-gathers a unit if the engine holds it unsharded between steps.
  void all_gather_held(std::size_t unit) {
    if (holds_fp32_) {
      start_all_gather(unit, std::as_writable_bytes(units()[unit].in(engine_.parameters())));
    } else if (const std::span<std::byte> held = engine_.held_unit(unit); !held.empty()) {
      start_all_gather(unit, held);
    }
  }
  void start_all_gather(std::size_t unit, std::span<std::byte> values) {
    const std::span<const float> local = parameter_shard(unit);
    const ArenaUnit& unsharded = plan_.unsharded().units[unit];
    const bool casts = parameter_type_ != Precision::fp32 && !unsharded.in_fp32;
    const ElementType type = casts ? element_of(parameter_type_) : ElementType::f32;
    const MutableBuffer all{
        .data = values.data(), .count = unsharded.size(), .type = type, .owner = engine_memory_};
    ConstBuffer mine{
        .data = local.data(), .count = local.size(), .type = type, .owner = parameters_};
    if (casts) {
      // Cast into this rank's place in the output: an in-place all-gather.
      auto* const place = reinterpret_cast<std::uint16_t*>(values.data()) +
                          static_cast<std::size_t>(comms_.group.rank()) * local.size();
      engine_.memory().cast(local, parameter_type_, place);
      mine.data = place;
    }
    gathers_[unit] = comms_.group.start_all_gather_buffer(mine, all);
  }

  void start_gather(std::size_t unit, std::span<std::byte> values) override {
    start_all_gather(unit, values);
  }
  void await_gather(std::size_t unit) override { wait(gathers_[unit]); }
  /// Waits for a request of the group.
  void wait(Request& request) {
    if (request.done()) return;
    const auto begin = std::chrono::steady_clock::now();
    comms_.group.wait(request);
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void await(FunctionRef<bool()> reached) override { comms_.all.synchronize_until(reached); }

  void start_reduction(std::size_t unit, std::span<const float> gradients) override {
    Reduction& reduction = reductions_[unit];
    reduction.adds = !holds_gradients_ && !first_;
    reduction.request =
        unit_reducer_.start(unit, gradients, reduction.adds ? addends_ : gradients_);
  }
  void await_reduction(std::size_t unit) override {
    Reduction& reduction = reductions_[unit];
    wait(reduction.request);
    unit_reducer_.end(unit, reduction.adds ? addends_ : gradients_);
    if (!reduction.adds) return;
    engine_.memory().add(local_shard(*addends_, unit), local_shard(*gradients_, unit));
  }
  [[nodiscard]] bool has_replicas() const noexcept override { return comms_.replicas != nullptr; }
  void start_replica_reduction(std::size_t unit) override {
    reductions_[unit].over_replicas = unit_reducer_.start_over_replicas(unit, gradients_);
  }

  /// Collectives progress only inside calls. Tests one request of each communicator, which
  /// progresses all of that communicator's.
  void progress() override {
    test_first(comms_.group, [this](std::size_t unit) -> Request& {
      return gathers_[unit].done() ? reductions_[unit].request : gathers_[unit];
    });
    if (comms_.replicas == nullptr) return;
    test_first(*comms_.replicas,
               [this](std::size_t unit) -> Request& { return reductions_[unit].over_replicas; });
  }
  /// Tests the first request in flight; `request_of(unit)` returns a unit's.
  template <typename RequestOf>
  void test_first(Communicator& comm, RequestOf&& request_of) {
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
      Request& request = request_of(unit);
      if (request.done()) continue;
      comm.test(request);
      return;
    }
  }

  Engine& engine_;
  ShardComms comms_;
  MemoryOwner engine_memory_;  ///< includes the values of programs
  ShardPlan plan_;
  bool holds_fp32_;
  bool holds_gradients_;
  std::shared_ptr<ArenaMemory> parameters_;  ///< null: the engine holds all of them in fp32
  std::shared_ptr<ArenaMemory> gradients_;
  std::shared_ptr<ArenaMemory> addends_;  ///< sums of a micro-step after the first
  std::shared_ptr<ArenaMemory> tail_;
  Precision parameter_type_;
  UnitReducer unit_reducer_;
  std::vector<float> host_shard_;              ///< of any unit, for transfers to and from rank 0
  std::vector<ParameterRange> update_ranges_;  ///< by unit
  std::vector<Request> gathers_;               ///< by unit
  std::vector<Reduction> reductions_;          ///< by unit
  Request tail_request_;
  bool first_ = true;  ///< micro-step
  double waited_ = 0;
};

}  // namespace

std::unique_ptr<ParallelState> make_sharded_state(Engine& engine, const ShardComms& comms,
                                                  const ShardingOptions& options) {
  return std::make_unique<ShardedState>(engine, comms, options);
}

}  // namespace lockstep
