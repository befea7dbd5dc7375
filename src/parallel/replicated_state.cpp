#include "lockstep/parallel/gradient_reducer.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t piece_values = std::size_t{1} << 20;  ///< of a broadcast

class ReplicatedState final : public ParallelState {
 public:
  ReplicatedState(Engine& engine, Communicator& host, Communicator& comm,
                  const ReplicationOptions& options)
      : engine_(engine),
        host_(host),
        comm_(comm),
        tail_size_(options.tail_size),
        reducer_(comm, engine.gradients(),
                 plan_buckets(engine.layout(), options.tail_size, options.bucket_bytes,
                              options.wire == ElementType::f32 ? TailPlace::in_the_last_bucket
                                                               : TailPlace::in_a_bucket_of_its_own),
                 {.type = options.wire, .gradients = engine.layout().size()}, &engine) {}

  [[nodiscard]] const ArenaLayout& layout() const noexcept override { return engine_.layout(); }
  [[nodiscard]] std::span<float> parameters() noexcept override { return engine_.parameters(); }
  [[nodiscard]] std::span<float> gradients() noexcept override {
    return engine_.gradients().first(layout().size());
  }

  void begin_step() override { reducer_.begin(); }
  [[nodiscard]] BackwardObserver& begin_micro_step(MicroStep micro) override {
    if (micro.last) return reducer_;
    return no_reduction_;
  }
  void finish(std::span<const float> tail, const Reduced& reduced) override {
    engine_.queue_write(tail, sent_tail());
    const std::size_t size = layout().size();
    reducer_.finish([&](const Bucket& bucket) {
      reduced(bucket.begin, std::max(bucket.begin, std::min(bucket.end, size)));
    });
    comm_.synchronize();
  }
  [[nodiscard]] double take_waited_seconds() override { return 0; }
  void read_tail(std::span<float> tail) override { engine_.read(sent_tail(), tail); }
  void updated() override {}
  [[nodiscard]] SumOverRanks sum_over_parts() override { return {}; }
  [[nodiscard]] std::size_t parts() const noexcept override { return reducer_.buckets().size(); }

  [[nodiscard]] StateBytes bytes(std::size_t slots) override {
    return {.parameters = engine_.parameters().size_bytes(),
            .gradients = engine_.gradients().size_bytes(),
            .optimizer = slots * parameters().size_bytes()};
  }

  void distribute(std::span<float> whole, std::span<float> own) override {
    std::vector<float> received(host_.rank() == 0 ? 0 : std::min(own.size(), piece_values));
    for (std::size_t begin = 0; begin < own.size(); begin += piece_values) {
      const std::size_t size = std::min(piece_values, own.size() - begin);
      const std::span<float> values =
          host_.rank() == 0 ? whole.subspan(begin, size) : std::span(received).first(size);
      host_.broadcast(values);
      engine_.write(values, own.subspan(begin, size));
    }
  }
  void collect(std::span<const float> own, std::span<float> whole) override {
    if (!whole.empty()) engine_.read(own, whole);
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
