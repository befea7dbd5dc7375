#include "lockstep/parallel/replica_averager.hpp"

#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/weight_average.hpp"

namespace lockstep {
namespace {

/// Runs of trained views of about `bytes`. The gradients of frozen views must remain zero.
std::vector<ArenaUnit> trained_ranges(const ArenaLayout& layout, std::size_t bytes) {
  std::vector<ArenaUnit> ranges;
  bool continues = false;
  for (const ArenaView& view : layout.views) {
    const bool trained = view.lr_scale != 0;
    if (trained && continues && ranges.back().size() * sizeof(float) < bytes) {
      ranges.back().end = view.end();
    } else if (trained) {
      ranges.push_back({.begin = view.offset, .end = view.end()});
    }
    continues = trained;
  }
  return ranges;
}

}  // namespace

ReplicaAverager::ReplicaAverager(Engine& engine, Communicator& comm, Optimizer& optimizer,
                                 const Options& options)
    : engine_(engine),
      comm_(comm),
      optimizer_(optimizer),
      options_(options),
      ranges_(trained_ranges(engine.layout(), options.bucket_bytes)),
      requests_(ranges_.size()) {}

void ReplicaAverager::average() {
  average(engine_.parameters());
  for (std::size_t slot = 0; slot < optimizer_.slot_names().size(); ++slot) {
    const bool is_ema = optimizer_.slot_names()[slot] == ema_slot;
    if (options_.averages_slots || is_ema) average(optimizer_.slot(slot));
  }
  // Until the next step's reductions, nothing else would notice that a rank is lost.
  comm_.synchronize();
}

/// The gradients' arena has the layout of `arena`, and its owner keeps it alive if a rank fails
/// during a reduction.
void ReplicaAverager::average(std::span<float> arena) {
  const std::span<float> sums = engine_.gradients();
  const float share = 1.0F / static_cast<float>(comm_.size());
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const std::span<float> values = ranges_[i].in(sums);
    engine_.memory().scale(ranges_[i].in(arena), share, values);
    requests_[i] = comm_.start_all_reduce_buffer(buffer_of(values, engine_.arena()), ReduceOp::sum);
  }
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    comm_.wait(requests_[i]);
    engine_.memory().scale(ranges_[i].in(sums), 1, ranges_[i].in(arena));
  }
}

}  // namespace lockstep
