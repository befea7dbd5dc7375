#include "broadcast_arena.hpp"
#include "gradient_reducer.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "register_memory.hpp"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

/// Units of at least 4 MiB, cut between views.
std::vector<ArenaUnit> units_of(const ArenaLayout& layout) {
  constexpr std::size_t unit_values = std::size_t{1} << 20;
  std::vector<ArenaUnit> units;
  std::size_t begin = 0;
  for (const ArenaView& view : layout.views) {
    if (view.end() - begin < unit_values) continue;
    units.push_back({.begin = begin, .end = view.end()});
    begin = view.end();
  }
  if (begin != layout.size()) units.push_back({.begin = begin, .end = layout.size()});
  return units;
}

class ReplicatedState final : public ParallelState, private UnitExchange {
 public:
  ReplicatedState(Engine& engine, Communicator& host, Communicator& comm,
                  const ReplicationOptions& options)
      : engine_(engine),
        host_(host),
        comm_(comm),
        unsharded_{.begin = 0, .end = engine.layout().size(), .parameters = engine.parameters()},
        units_(units_of(engine.layout())),
        reducer_(comm, engine.gradients(),
                 plan_buckets(engine.layout(), options.tail_size, options.bucket_bytes,
                              tail_place(options.reduce_dtype)),
                 {.type = options.reduce_dtype, .gradients = engine.layout().size()}, &engine) {
    // The last bucket has the tail: it starts after backward.
    const std::span<const Bucket> buckets = reducer_.buckets();
    for (const Bucket& bucket : buckets.first(buckets.size() - 1)) {
      bucket_ends_.push_back(bucket.end);
    }
    register_arena(comm_, engine, engine.gradients());
  }

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return engine_.layout(); }
  [[nodiscard]] std::span<float> gradients() noexcept override {
    return engine_.gradients().first(layout().size());
  }

  [[nodiscard]] std::span<const ParameterRange> update_ranges() const noexcept override {
    return {&unsharded_, 1};
  }

  [[nodiscard]] UnitExchange& exchange() noexcept override { return *this; }
  [[nodiscard]] std::span<const std::size_t> bucket_ends() const noexcept override {
    return bucket_ends_;
  }
  [[nodiscard]] StepEnd step_end() const noexcept override {
    const bool joins = reducer_.buckets().back().begin < layout().size();
    return {.units = bucket_ends_.size() + (joins ? 1 : 0),
            .tail_joins_last = joins,
            .awaits_reductions = true};
  }
  [[nodiscard]] ParameterRange range_of(std::size_t unit) const noexcept override {
    const Bucket& bucket = reducer_.buckets()[unit];
    return {.begin = bucket.begin,
            .end = std::min(bucket.end, layout().size()),
            .parameters = unsharded_.parameters};
  }

  void begin_step(StepSync sync) override {
    sync_ = sync;
    reducer_.begin();
  }
  void begin_micro_step(bool /*first*/) override {}
  void start_tail(std::span<const float> tail) override {
    engine_.memory().queue_write(tail, sent_tail());
    if (sync_ == StepSync::gradients) return reducer_.start_until(reducer_.buckets().size());
    tail_request_ =
        comm_.start_all_reduce_buffer(buffer_of(sent_tail(), engine_.arena()), ReduceOp::sum);
  }
  void await_tail() override {
    if (sync_ != StepSync::gradients) return comm_.wait(tail_request_);
    reducer_.await(reducer_.buckets().size() - 1);
  }
  [[nodiscard]] std::span<const float> reduced_tail() noexcept override { return sent_tail(); }
  void queue_read_tail(std::span<float> tail) override {
    engine_.memory().queue_read(sent_tail(), tail);
  }
  void await_read_tail() override {
    await([this] { return engine_.memory().has_read(); });
  }
  [[nodiscard]] SumOverRanks sum_over_shards() override {
    return [](std::span<double>) {};
  }

  [[nodiscard]] StateBytes bytes(std::size_t slots) override {
    return {.parameters = engine_.parameters().size_bytes(),
            .gradients = engine_.gradients().size_bytes() + reducer_.bytes(),
            .optimizer = slots * engine_.parameters().size_bytes(),
            .copy = host_.rank() == 0 ? bytes_to_save(engine_.layout(), slots) : 0};
  }

  [[nodiscard]] std::span<const ArenaUnit> units() const noexcept override { return units_; }
  void scatter_parameters(std::size_t unit, std::span<float> unsharded) override {
    scatter(unit, unsharded, engine_.parameters());
  }
  void scatter(std::size_t unit, std::span<float> unsharded, std::span<float> local) override {
    broadcast_arena(engine_, host_, unsharded, units_[unit].in(local));
  }
  void gather_parameters(std::size_t unit, std::span<float> unsharded) override {
    gather(unit, engine_.parameters(), unsharded);
  }
  void gather(std::size_t unit, std::span<const float> local, std::span<float> unsharded) override {
    if (host_.rank() == 0) engine_.memory().read(units_[unit].in(local), unsharded);
  }
  /// Of the forward that may be queued early, whose collectives precede what is read next: other
  /// ranks may be lost, which a plain wait for the device would not notice.
  void await_gathers() override { comm_.synchronize(); }

 private:
  // UnitExchange. Units are buckets; nothing is sharded.
  void start_reduction(std::size_t unit, std::span<const float> /*gradients*/) override {
    reducer_.start_until(unit + 1);
  }
  void await_reduction(std::size_t unit) override {
    if (sync_ == StepSync::gradients) reducer_.await(unit);
  }
  void progress() override { reducer_.progress(); }
  void await(FunctionRef<bool()> reached) override { comm_.synchronize_until(reached); }

  [[nodiscard]] std::span<float> sent_tail() noexcept {
    return engine_.gradients().subspan(layout().size());
  }

  Engine& engine_;
  Communicator& host_;
  Communicator& comm_;
  ParameterRange unsharded_;
  std::vector<ArenaUnit> units_;
  StepSync sync_ = StepSync::gradients;
  GradientReducer reducer_;
  std::vector<std::size_t> bucket_ends_;
  Request tail_request_;  ///< of a local step
};

}  // namespace

std::unique_ptr<ParallelState> make_replicated_state(Engine& engine, Communicator& host,
                                                     Communicator& comm,
                                                     const ReplicationOptions& options) {
  return std::make_unique<ReplicatedState>(engine, host, comm, options);
}

}  // namespace lockstep
