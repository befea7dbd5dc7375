#include "batch_request.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

void check_request(const BatchRequest& request, std::int64_t samples,
                   const LoaderOptions& options) {
  if (options.mix.any() && request.first % 2 != 0) {
    fail(ExitStatus::internal,
         "batch of positions [{}, {}) (mixing needs both samples of a pair, so an even first "
         "position); report this",
         request.first, request.first + request.count);
  }
  const Slice& step = request.step;
  if (options.repeats > 1 &&
      (request.first < step.begin || request.first + request.count > step.end() ||
       step.end() > samples)) {
    fail(ExitStatus::internal,
         "batch of positions [{}, {}) (it is not within its step's, [{}, {})); report this",
         request.first, request.first + request.count, step.begin, step.end());
  }
  if (request.count >= 0 && request.count <= options.batch_capacity && request.first >= 0 &&
      request.first <= samples - request.count) {
    return;
  }
  fail(ExitStatus::internal,
       "batch of positions [{}, {}) (the loader has batches of up to {} samples, and {} "
       "samples); report this",
       request.first, request.first + request.count, options.batch_capacity, samples);
}

SampleCopy sample_at(const BatchRequest& request, std::int64_t position,
                     const LoaderOptions& options, const SampleOrder& order) noexcept {
  if (!options.shuffle) return {.sample = position};
  if (options.repeats == 1) return {.sample = order.at(request.epoch, position)};
  const Slice& step = request.step;
  const std::int64_t place = spread_copies(position - step.begin, step.count, options.repeats);
  return order.copy_at(request.epoch, step.begin + place, options.repeats);
}

}  // namespace lockstep
