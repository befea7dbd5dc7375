#include "broadcast_arena.hpp"
#include "element_precision.hpp"
#include "keep_until_exit.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_plan.hpp"
#include "register_memory.hpp"
#include "unit_reducer.hpp"

#include <chrono>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class ShardedState final : public ParallelState, private UnitExchange, private BackwardObserver {
 public:
  ShardedState(Engine& engine, const ShardComms& comms, const ShardingOptions& options)
      : engine_(engine),
        comms_(comms),
        plan_(engine.layout(), comms.group.rank(), comms.group.size()),
        holds_parameters_(!engine.parameters().empty()),
        holds_gradients_(!engine.gradients().empty()),
        gradients_(engine.allocate(plan_.own().size())),
        tail_(engine.allocate(options.tail_size)),
        parameter_type_(options.parameters),
        unit_reducer_(engine, plan_, comms.group, comms.replicas,
                      {.type = options.reduce_dtype, .all_at_once = holds_gradients_}),
        gathers_(plan_.units()),
        reductions_(plan_.units()) {
    if (options.accumulates && !holds_gradients_) addends_ = engine.allocate(plan_.own().size());
    if (!holds_parameters_) parameters_ = engine.allocate(plan_.own().size());
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
      const ArenaUnit& own = plan_.own().units[unit];
      // Shift the whole arena's span so that this rank's own offsets index its values.
      const std::span<float> parameters =
          holds_parameters_ ? engine.parameters().subspan(plan_.begin_in_whole(unit) - own.begin)
                            : parameters_->values();
      parts_.push_back({.begin = own.begin, .end = own.end, .parameters = parameters});
      if (holds_gradients_) boundaries_.push_back(plan_.whole().units[unit].end);
    }
    register_memory();
    engine.set_exchange(*this);
  }
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;
  ~ShardedState() override {
    // Requests in flight write to memory that is about to be freed, so wait for them. Every rank
    // has started them, or some rank ends the job.
    try {
      settle();
      for (Reduction& reduction : reductions_) {
        comms_.group.wait(reduction.request);
        if (comms_.replicas != nullptr) comms_.replicas->wait(reduction.over_replicas);
      }
    } catch (const Error&) {
      for (const auto& owner : {parameters_, gradients_, addends_, tail_}) keep_until_exit(owner);
      keep_until_exit(engine_.arenas());
      unit_reducer_.keep_until_exit();
    }
  }

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return plan_.own(); }
  [[nodiscard]] std::span<float> gradients() noexcept override { return gradients_->values(); }

  [[nodiscard]] std::span<const UpdatePart> parts() const noexcept override { return parts_; }

  void begin_step() override { started_ = 0; }
  [[nodiscard]] BackwardObserver& begin_micro_step(MicroStep micro) override {
    micro_ = micro;
    return *this;
  }

  void finish(std::span<const float> tail, Reduced reduced) override {
    // Needed if this rank's data failed before the last micro-step.
    if (holds_gradients_) start_filled_units(plan_.whole().size());
    engine_.queue_write(tail, tail_->values());
    Request tail_request = comms_.all.start_all_reduce(tail_->values());
    if (comms_.replicas != nullptr) {
      for (std::size_t unit = 0; unit < plan_.units(); ++unit) await_reduction(unit);
    }
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
      await_reduction(unit);
      await_replicas(unit);
      reduced(parts_[unit]);
    }
    comms_.all.wait(tail_request);
    waited_ = 0;  // the caller measures these waits: they are not inside a program
  }

  [[nodiscard]] double take_waited_seconds() override { return std::exchange(waited_, 0); }
  [[nodiscard]] std::span<const float> reduced_tail() noexcept override { return tail_->values(); }
  void queue_read_tail(std::span<float> tail) override {
    engine_.queue_read(tail_->values(), tail);
  }
  void await_tail() override {
    await([this] { return engine_.has_read(); });
  }

  void updated() override {
    // Forward needs the last unit first.
    for (std::size_t unit = plan_.units(); unit-- > 0;) bring_together(unit);
  }

  [[nodiscard]] SumOverRanks sum_over_parts() override {
    return [this](std::span<double> values) { comms_.group_host.all_reduce(values); };
  }
  [[nodiscard]] std::size_t reductions() const noexcept override { return plan_.units(); }

  [[nodiscard]] StateBytes bytes(std::size_t slots) override {
    const std::size_t addends = addends_ ? addends_->values().size_bytes() : 0;
    const std::size_t own = gradients().size_bytes();
    std::size_t held = holds_parameters_ ? engine_.parameters().size_bytes() : own;
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) held += engine_.held_unit(unit).size();
    return {.parameters = held,
            .gradients = engine_.gradients().size_bytes() + own + addends + unit_reducer_.bytes(),
            .optimizer = slots * own,
            .copy = copy_bytes(slots)};
  }

  [[nodiscard]] std::span<const ArenaUnit> pieces() const noexcept override {
    return plan_.whole().units;
  }
  void distribute_parameters(std::size_t unit, std::span<float> whole) override {
    if (holds_parameters_) {
      return broadcast_arena(engine_, comms_.group_host, whole,
                             pieces()[unit].in(engine_.parameters()));
    }
    settle();  // all-gathers into the engine's 16-bit units may still be in flight
    distribute(unit, whole, parameters_->values());
    bring_together(unit);
  }
  // Every group makes the same calls; only rank 0's group has the values, its replicas get them.
  void distribute(std::size_t unit, std::span<float> whole, std::span<float> own) override {
    const ArenaUnit& kept = plan_.own().units[unit];
    std::vector<float> instead;
    std::vector<float> part(kept.size());
    comms_.group_host.scatter(std::span<const float>(at_root(unit, whole, instead)),
                              std::span(part));
    if (comms_.replicas_host != nullptr) comms_.replicas_host->broadcast(std::span(part));
    engine_.write(part, kept.in(own));
  }
  [[nodiscard]] std::span<const float> given_parameters(std::size_t unit) override {
    settle();
    return in_first_group() ? own_parameters(unit) : std::span<const float>();
  }
  [[nodiscard]] std::span<const float> given(std::size_t unit,
                                             std::span<const float> own) const override {
    return in_first_group() ? plan_.own().units[unit].in(own) : std::span<const float>();
  }
  void collect(std::size_t, std::span<const float> given, std::span<float> whole) override {
    if (in_first_group()) comms_.group_host.gather(given, whole);
  }

  void settle() override {
    for (Request& request : gathers_) comms_.group.wait(request);
    comms_.group.synchronize();
  }

 private:
  struct Reduction {
    Request request;
    bool adds = false;  ///< the sum is added to that of earlier micro-steps
    Request over_replicas = {};
    bool in_group = false;        ///< reduce-scatter started, result not taken yet
    bool between_groups = false;  ///< all-reduce over the replicas started
  };

  /// Registers all communication memory except that inside the values of programs.
  void register_memory() {
    if (holds_parameters_) register_arena(comms_.group, engine_, engine_.parameters());
    if (const auto first = engine_.held_unit(0); !first.empty()) {
      const auto last = engine_.held_unit(plan_.units() - 1);
      register_arena(comms_.group, engine_, std::span(first.data(), last.data() + last.size()));
    }
    if (holds_gradients_) register_arena(comms_.group, engine_, engine_.gradients());
    for (const auto& own : {parameters_, gradients_, addends_}) register_values(comms_.group, own);
    if (comms_.replicas != nullptr) register_values(*comms_.replicas, gradients_);
    register_values(comms_.all, tail_);
  }
  /// Whether this is rank 0's shard group.
  [[nodiscard]] bool in_first_group() const noexcept {
    return comms_.replicas_host == nullptr || comms_.replicas_host->rank() == 0;
  }
  [[nodiscard]] std::size_t copy_bytes(std::size_t slots) const {
    if (!in_first_group()) return 0;
    const bool collects = comms_.group_host.rank() == 0;
    return sizeof(float) *
           ((1 + slots) * plan_.own().size() + (collects ? arrival_room(pieces(), 1 + slots) : 0));
  }
  /// A unit's values on rank 0; `instead` at the roots of other groups.
  [[nodiscard]] std::span<float> at_root(std::size_t unit, std::span<float> whole,
                                         std::vector<float>& instead) const {
    if (!whole.empty()) return whole;
    if (comms_.group_host.rank() == 0) instead.resize(pieces()[unit].size());
    return instead;
  }
  [[nodiscard]] std::span<const float> own_parameters(std::size_t unit) const {
    const UpdatePart& part = parts_[unit];
    return part.parameters.subspan(part.begin, part.end - part.begin);
  }
  [[nodiscard]] std::span<float> own_part(ArenaMemory& memory, std::size_t unit) const {
    const ArenaUnit& own = plan_.own().units[unit];
    return memory.values().subspan(own.begin, own.size());
  }

  /// All-gathers a unit if the engine holds it unsharded between steps.
  void bring_together(std::size_t unit) {
    if (holds_parameters_) {
      gather(unit, std::as_writable_bytes(pieces()[unit].in(engine_.parameters())));
    } else if (const std::span<std::byte> held = engine_.held_unit(unit); !held.empty()) {
      gather(unit, held);
    }
  }
  void gather(std::size_t unit, std::span<std::byte> values) {
    const std::span<const float> own = own_parameters(unit);
    const ArenaUnit& whole = plan_.whole().units[unit];
    const bool casts = parameter_type_ != Precision::fp32 && !whole.in_fp32;
    const ElementType type = casts ? element_of(parameter_type_) : ElementType::f32;
    const MutableBuffer all{.data = values.data(), .count = whole.size(), .type = type};
    ConstBuffer mine{.data = own.data(), .count = own.size(), .type = type};
    if (casts) {
      // Cast into this rank's place in the output: an in-place all-gather.
      auto* const place = reinterpret_cast<std::uint16_t*>(values.data()) +
                          static_cast<std::size_t>(comms_.group.rank()) * own.size();
      engine_.cast(own, parameter_type_, place);
      mine.data = place;
    }
    gathers_[unit] = comms_.group.start_all_gather_buffer(mine, all);
  }

  void start_gather(std::size_t unit, std::span<std::byte> values) override {
    gather(unit, values);
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
    reduction.adds = !holds_gradients_ && !micro_.first;
    ArenaMemory& target = reduction.adds ? *addends_ : *gradients_;
    reduction.request = unit_reducer_.start(unit, gradients, own_part(target, unit));
    reduction.in_group = true;
  }
  void await_reduction(std::size_t unit) override {
    Reduction& reduction = reductions_[unit];
    wait(reduction.request);
    if (!reduction.in_group) return;
    reduction.in_group = false;
    unit_reducer_.end(unit, own_part(reduction.adds ? *addends_ : *gradients_, unit));
    if (reduction.adds) engine_.add(own_part(*addends_, unit), own_part(*gradients_, unit));
    if (!micro_.last || comms_.replicas == nullptr) return;
    reduction.over_replicas = unit_reducer_.start_over_replicas(unit, own_part(*gradients_, unit));
    reduction.between_groups = true;
  }
  void await_replicas(std::size_t unit) {
    Reduction& reduction = reductions_[unit];
    if (!std::exchange(reduction.between_groups, false)) return;
    comms_.replicas->wait(reduction.over_replicas);
    unit_reducer_.end_over_replicas(unit, own_part(*gradients_, unit));
  }

  void start_filled_units(std::size_t filled) {
    for (; started_ < plan_.units() && plan_.whole().units[started_].end <= filled; ++started_) {
      const ArenaUnit& unit = plan_.whole().units[started_];
      start_reduction(started_, engine_.gradients().subspan(unit.begin, unit.size()));
    }
  }

  void gradients_ready(std::size_t filled) override {
    if (holds_gradients_ && micro_.last) start_filled_units(filled);
    progress();
  }
  [[nodiscard]] std::span<const std::size_t> boundaries() const noexcept override {
    return micro_.last ? std::span<const std::size_t>(boundaries_) : std::span<const std::size_t>();
  }
  /// MPI progresses only inside calls; one test drives all requests.
  void progress() override {
    for (std::size_t unit = 0; unit < plan_.units(); ++unit) {
      for (Request* request : {&gathers_[unit], &reductions_[unit].request}) {
        if (request->done()) continue;
        comms_.group.test(*request);
        return;
      }
      Request& request = reductions_[unit].over_replicas;
      if (request.done()) continue;
      comms_.replicas->test(request);
      return;
    }
  }

  Engine& engine_;
  ShardComms comms_;
  ShardPlan plan_;
  bool holds_parameters_;
  bool holds_gradients_;
  std::shared_ptr<ArenaMemory> parameters_;  ///< null: the engine holds all of them in fp32
  std::shared_ptr<ArenaMemory> gradients_;
  std::shared_ptr<ArenaMemory> addends_;  ///< sums of a micro-step after the first
  std::shared_ptr<ArenaMemory> tail_;
  Precision parameter_type_;
  UnitReducer unit_reducer_;
  std::vector<UpdatePart> parts_;        ///< by unit
  std::vector<std::size_t> boundaries_;  ///< ends of units whose gradients the engine holds
  std::size_t started_ = 0;              ///< units whose reduction started, if the engine holds all
  std::vector<Request> gathers_;         ///< by unit
  std::vector<Reduction> reductions_;    ///< by unit
  MicroStep micro_;
  double waited_ = 0;
};

}  // namespace

std::unique_ptr<ParallelState> make_sharded_state(Engine& engine, const ShardComms& comms,
                                                  const ShardingOptions& options) {
  return std::make_unique<ShardedState>(engine, comms, options);
}

}  // namespace lockstep
