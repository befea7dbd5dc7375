#include "broadcast_arena.hpp"
#include "lockstep/parallel/gradient_reducer.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "register_memory.hpp"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

/// Pieces of at least 4 MiB, cut between views.
std::vector<ArenaUnit> pieces_of(const ArenaLayout& layout) {
  constexpr std::size_t piece_values = std::size_t{1} << 20;
  std::vector<ArenaUnit> pieces;
  std::size_t begin = 0;
  for (const ArenaView& view : layout.views) {
    if (view.end() - begin < piece_values) continue;
    pieces.push_back({.begin = begin, .end = view.end()});
    begin = view.end();
  }
  if (begin != layout.size()) pieces.push_back({.begin = begin, .end = layout.size()});
  return pieces;
}

class ReplicatedState final : public ParallelState {
 public:
  ReplicatedState(Engine& engine, Communicator& host, Communicator& comm,
                  const ReplicationOptions& options)
      : engine_(engine),
        host_(host),
        comm_(comm),
        tail_size_(options.tail_size),
        whole_{.begin = 0, .end = engine.layout().size(), .parameters = engine.parameters()},
        pieces_(pieces_of(engine.layout())),
        reducer_(comm, engine.gradients(),
                 plan_buckets(engine.layout(), options.tail_size, options.bucket_bytes,
                              options.reduce_dtype == ElementType::f32
                                  ? TailPlace::in_the_last_bucket
                                  : TailPlace::in_a_bucket_of_its_own),
                 {.type = options.reduce_dtype, .gradients = engine.layout().size()}, &engine) {
    register_arena(comm_, engine, engine.gradients());
  }

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return engine_.layout(); }
  [[nodiscard]] std::span<float> gradients() noexcept override {
    return engine_.gradients().first(layout().size());
  }

  [[nodiscard]] std::span<const UpdatePart> parts() const noexcept override { return {&whole_, 1}; }

  void begin_step() override { reducer_.begin(); }
  [[nodiscard]] BackwardObserver& begin_micro_step(MicroStep micro) override {
    if (micro.last) return reducer_;
    return no_reduction_;
  }
  void finish(std::span<const float> tail, Reduced reduced) override {
    engine_.queue_write(tail, sent_tail());
    const std::size_t size = layout().size();
    reducer_.finish([&](const Bucket& bucket) {
      if (bucket.begin >= size) return;
      reduced({.begin = bucket.begin,
               .end = std::min(bucket.end, size),
               .parameters = whole_.parameters});
    });
  }
  [[nodiscard]] double take_waited_seconds() override { return 0; }
  [[nodiscard]] std::span<const float> reduced_tail() noexcept override { return sent_tail(); }
  void queue_read_tail(std::span<float> tail) override { engine_.queue_read(sent_tail(), tail); }
  void await_tail() override {
    comm_.synchronize_until([this] { return engine_.has_read(); });
  }
  void updated() override {}
  [[nodiscard]] SumOverRanks sum_over_parts() override { return {}; }
  [[nodiscard]] std::size_t reductions() const noexcept override {
    return reducer_.buckets().size();
  }

  [[nodiscard]] StateBytes bytes(std::size_t slots) override {
    return {.parameters = engine_.parameters().size_bytes(),
            .gradients = engine_.gradients().size_bytes() + reducer_.bytes(),
            .optimizer = slots * engine_.parameters().size_bytes(),
            .copy = host_.rank() == 0 ? (1 + slots) * engine_.parameters().size_bytes() : 0};
  }

  [[nodiscard]] std::span<const ArenaUnit> pieces() const noexcept override { return pieces_; }
  void distribute_parameters(std::size_t piece, std::span<float> whole) override {
    distribute(piece, whole, engine_.parameters());
  }
  void distribute(std::size_t piece, std::span<float> whole, std::span<float> own) override {
    broadcast_arena(engine_, host_, whole, pieces_[piece].in(own));
  }
  [[nodiscard]] std::span<const float> given_parameters(std::size_t piece) override {
    return given(piece, engine_.parameters());
  }
  [[nodiscard]] std::span<const float> given(std::size_t piece,
                                             std::span<const float> own) const override {
    return host_.rank() == 0 ? pieces_[piece].in(own) : std::span<const float>();
  }
  void collect(std::size_t, std::span<const float> given, std::span<float> whole) override {
    std::ranges::copy(given, whole.begin());
  }
  void settle() override {}

 private:
  [[nodiscard]] std::span<float> sent_tail() noexcept {
    return engine_.gradients().subspan(layout().size(), tail_size_);
  }

  Engine& engine_;
  Communicator& host_;
  Communicator& comm_;
  std::size_t tail_size_;
  UpdatePart whole_;
  std::vector<ArenaUnit> pieces_;
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
