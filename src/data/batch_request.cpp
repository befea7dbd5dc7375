#include "batch_request.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

void check_request(const BatchRequest& request, std::int64_t samples,
                   const LoaderOptions& options) {
  const Slice step = options.repeats > 1 ? request.step : step_of(request);
  const std::int64_t last = request.first + request.count;
  const bool takes_pixels = options.format.content == ImageContent::pixels;
  const bool splits_pair =
      (request.first - step.begin) % 2 != 0 || ((last - step.begin) % 2 != 0 && last < step.end());
  if (options.mix.any() && takes_pixels && splits_pair) {
    fail(ExitStatus::internal,
         "batch of positions [{}, {}) (a device mixes pairs within the batch); report this",
         request.first, last);
  }
  // The loader reads the partners of other batches.
  const bool reads_more = options.repeats > 1 || (options.mix.any() && !takes_pixels);
  if (reads_more && (request.first < step.begin || last > step.end() || step.end() > samples)) {
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

Slice step_of(const BatchRequest& request) noexcept {
  return request.step.count > 0 ? request.step
                                : Slice{.begin = request.first, .count = request.count};
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
