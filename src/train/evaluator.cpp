#include "lockstep/train/evaluator.hpp"

#include "data_wait.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/train/batch_geometry.hpp"
#include "sample_gatherer.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace lockstep {
namespace {

constexpr std::int64_t batches_between_agreements = 16;

/// Keeps the first error.
template <typename Work>
void keep(std::optional<Error>& error, Work work) {
  try {
    work();
  } catch (const Error& failure) {
    if (!error) error = failure;
  }
}

enum class Agreement : std::int64_t { go_on, stop, stuck };

/// The most that any rank wants; `stuck`: a rank cannot evaluate its samples. Throws, on all ranks,
/// if any has an error. Collective.
Agreement agree(const std::optional<Error>& error, const std::function<bool()>& stop_wanted,
                Communicator& comm) {
  Agreement mine = Agreement::go_on;
  if (stop_wanted && error && error->status() == ExitStatus::stopped) {
    mine = Agreement::stuck;
  } else if (stop_wanted && stop_wanted()) {
    mine = Agreement::stop;
  }
  const bool failed = error && mine != Agreement::stuck;
  std::array<std::int64_t, 2> flags{failed ? 1 : 0, static_cast<std::int64_t>(mine)};
  comm.all_reduce(std::span<std::int64_t>(flags), ReduceOp::max);
  if (flags[0] != 0) {
    collectively(comm, [&] {
      if (error) throw Error(*error);
    });
  }
  return static_cast<Agreement>(flags[1]);
}

/// The sums over all ranks, as means. Collective.
EvaluationResult mean_over_ranks(const BatchMetrics& total, Communicator& comm) {
  constexpr std::size_t metrics = metric_table.size();
  std::array<double, metrics + 2> sums{total.loss};
  std::ranges::copy(total.metrics.values, sums.begin() + 1);
  sums.back() = static_cast<double>(total.samples);
  comm.all_reduce(std::span<double>(sums));
  const double samples = sums.back();
  MetricValues means;
  for (std::size_t i = 0; i < metrics; ++i) means[i] = sums[1 + i] / samples;
  return {
      .samples = static_cast<std::int64_t>(samples), .loss = sums[0] / samples, .metrics = means};
}

}  // namespace

Evaluator::Evaluator(Engine& engine, const Dataset& dataset, Communicator& comm,
                     EvaluatorOptions options)
    : engine_(engine),
      dataset_(dataset),
      comm_(comm),
      options_(std::move(options)),
      classes_(engine.graph().outputs()) {
  options_.batch_size =
      std::min(options_.batch_size,
               std::max<std::int64_t>(1, slice_of(dataset.info().samples, comm.size(), 0).count));
  options_.loader.augment = Augment::none;
  options_.loader.auto_augment = {};
  options_.loader.random_erasing = 0;
  options_.loader.mix = {};
  options_.loader.drop_probabilities.clear();
  options_.loader.trace_row = "evaluation loader";
  options_.loader.shuffle = false;
  options_.loader.repeats = 1;
  options_.loader.batch_capacity = options_.batch_size;
  check_loader_options(dataset.info(), options_.loader);
  if (options_.loader.format.memory != nullptr) {
    options_.loader.format.memory = &memory_.emplace(*options_.loader.format.memory);
  }
  // Each run() makes a loader during training; create its trace rows here.
  static_cast<void>(loader_rows(options_.loader));
  program_ = engine.compile({.batch_size = options_.batch_size,
                             .training = false,
                             .exchange = options_.exchange,
                             .graph = options_.graph});
  if (options_.has_collectives) {
    blank_ = BlankBatch(options_.loader.image.shape(), options_.batch_size);
  }
}

std::optional<LoadedBatch> Evaluator::load_next(Loader& loader) {
  DataWait wait(loader, options_.warn);
  auto loaded = loader.next([&] { wait.check(); });
  if (loaded && loaded->batch.pixels.data != nullptr) engine_.prefetch(loaded->batch);
  return loaded;
}

BatchMetrics Evaluator::compute(Loader& loader, std::optional<LoadedBatch>& batch,
                                std::optional<Error>& error, std::vector<std::int32_t>& labels) {
  const bool has_batch = !error && batch;
  if (!has_batch && !options_.has_collectives) return {};
  program_->forward(has_batch ? batch->batch : blank_.of(1));
  if (has_batch) {
    labels.assign(batch->batch.targets.labels, batch->batch.targets.labels + batch->batch.size);
    // Loads the next batch while a device computes. The loader may reuse this one's memory.
    engine_.await_copy();
    keep(error, [&] { batch = load_next(loader); });
  }
  const BatchMetrics metrics = program_->metrics();
  return has_batch ? metrics : BatchMetrics{};
}

std::optional<EvaluationResult> Evaluator::run(const std::function<bool()>& stop_wanted) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t samples = dataset_.info().samples;
  const auto loader = make_loader(
      dataset_, options_.loader,
      plan_evaluation_batches(samples, comm_.size(), comm_.rank(), options_.batch_size));
  // Rank 0 has the largest slice; every rank makes as many rounds as rank 0 needs.
  const std::int64_t share = slice_of(samples, comm_.size(), 0).count;
  const std::int64_t rounds = (share + options_.batch_size - 1) / options_.batch_size;

  std::optional<SampleGatherer> gatherer;
  if (options_.on_samples) {
    gatherer.emplace(
        comm_, SampleGatherer::Options{
                   .samples = samples, .batch_size = options_.batch_size, .classes = classes_});
  }

  BatchMetrics total;
  std::optional<Error> error;
  std::optional<LoadedBatch> loaded;
  std::vector<std::int32_t> own_labels;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (options_.board != nullptr) options_.board->enter(Phase::evaluation);
    const TraceSpan span(options_.trace, "batch", {{{"batch", round}}});
    if (round == 0) keep(error, [&] { loaded = load_next(*loader); });
    std::span<const float> logits;
    std::span<const std::int32_t> labels;
    const auto evaluate = [&] {
      const BatchMetrics metrics = compute(*loader, loaded, error, own_labels);
      total += metrics;
      if (!gatherer || metrics.samples == 0) return;
      logits = program_->logits();
      labels = own_labels;
    };
    if (options_.has_collectives) {
      evaluate();  // if a collective fails, other ranks may wait in it until this rank ends
    } else {
      keep(error, evaluate);
    }
    if (gatherer) {
      gatherer->gather(labels, logits, [&](const EvaluatedSamples& piece) {
        keep(error, [&] {
          if (!error) options_.on_samples(piece);
        });
      });
    }
    if ((round + 1) % batches_between_agreements == 0 || round + 1 == rounds) {
      const Agreement agreed = agree(error, stop_wanted, comm_);
      if (agreed == Agreement::stuck || (agreed == Agreement::stop && round + 1 < rounds)) {
        if (loaded) engine_.discard(loaded->batch);
        return std::nullopt;
      }
    }
  }
  EvaluationResult result = mean_over_ranks(total, comm_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.seconds = seconds.count();
  return result;
}

}  // namespace lockstep
