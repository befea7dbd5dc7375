#include "broadcast_arena.hpp"
#include "lockstep/parallel/gradient_reducer.hpp"
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

class ReplicatedState final : public ParallelState {
 public:
  ReplicatedState(Engine& engine, Communicator& host, Communicator& comm,
                  const ReplicationOptions& options)
      : engine_(engine),
        host_(host),
        comm_(comm),
        tail_size_(options.tail_size),
        unsharded_{.begin = 0, .end = engine.layout().size(), .parameters = engine.parameters()},
        units_(units_of(engine.layout())),
        reducer_(
            comm, engine.gradients(),
            plan_buckets(engine.layout(), options.tail_size, options.bucket_bytes,
                         options.reduce_dtype == ElementType::f32 ? TailPlace::last_bucket
                                                                  : TailPlace::separate_bucket),
            {.type = options.reduce_dtype, .gradients = engine.layout().size()}, &engine) {
    register_arena(comm_, engine, engine.gradients());
  }

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return engine_.layout(); }
  [[nodiscard]] std::span<float> gradients() noexcept override {
    return engine_.gradients().first(layout().size());
  }

  [[nodiscard]] std::span<const ParameterRange> update_ranges() const noexcept override {
    return {&unsharded_, 1};
  }

  [[nodiscard]] UnitExchange* exchange() noexcept override { return nullptr; }
  [[nodiscard]] std::span<const std::size_t> bucket_ends() const noexcept override {
    return reducer_.boundaries();
  }

  void begin_step(StepSync sync) override {
    sync_ = sync;
    reducer_.begin();
  }
  [[nodiscard]] BackwardObserver& begin_micro_step(MicroStep micro) override {
    if (micro.last && sync_ == StepSync::gradients) return reducer_;
    return no_reduction_;
  }
  void finish(std::span<const float> tail, Reduced reduced) override {
    engine_.memory().queue_write(tail, sent_tail());
    if (sync_ != StepSync::gradients) {
      Request request =
          comm_.start_all_reduce_buffer(buffer_of(sent_tail(), engine_.arena()), ReduceOp::sum);
      reduced(unsharded_);
      comm_.wait(request);
      return;
    }
    const std::size_t size = layout().size();
    reducer_.finish([&](const Bucket& bucket) {
      if (bucket.begin >= size) return;
      reduced({.begin = bucket.begin,
               .end = std::min(bucket.end, size),
               .parameters = unsharded_.parameters});
    });
  }
  void progress() override { reducer_.progress(); }
  [[nodiscard]] double take_waited_seconds() override { return 0; }
  [[nodiscard]] std::span<const float> reduced_tail() noexcept override { return sent_tail(); }
  void queue_read_tail(std::span<float> tail) override {
    engine_.memory().queue_read(sent_tail(), tail);
  }
  void await_tail() override {
    comm_.synchronize_until([this] { return engine_.memory().has_read(); });
  }
  void updated() override {}
  [[nodiscard]] SumOverRanks sum_over_shards() override {
    return [](std::span<double>) {};
  }
  [[nodiscard]] std::size_t reductions() const noexcept override {
    return reducer_.buckets().size();
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
  [[nodiscard]] std::span<float> sent_tail() noexcept {
    return engine_.gradients().subspan(layout().size(), tail_size_);
  }

  Engine& engine_;
  Communicator& host_;
  Communicator& comm_;
  std::size_t tail_size_;
  ParameterRange unsharded_;
  std::vector<ArenaUnit> units_;
  StepSync sync_ = StepSync::gradients;
  GradientReducer reducer_;
  NoReduction no_reduction_;
};

}  // namespace

std::unique_ptr<ParallelState> make_replicated_state(Engine& engine, Communicator& host,
                                                     Communicator& comm,
                                                     const ReplicationOptions& options) {
  return std::make_unique<ReplicatedState>(engine, host, comm, options);
}

}  // namespace lockstep
