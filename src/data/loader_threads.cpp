#include "lockstep/data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep {

int loader_threads(std::int64_t asked, const LoaderOptions& options, std::int64_t share) noexcept {
  constexpr std::int64_t most = 16;
  if (asked >= 0) return static_cast<int>(asked);
  if (options.format.content == ImageContent::values) return 1;
  return static_cast<int>(
      std::clamp(std::min(std::ssize(options.cores), share) - 1, std::int64_t{1}, most));
}

std::vector<TraceRow*> loader_rows(const LoaderOptions& options) {
  // Without threads, one row for the calling thread.
  std::vector<TraceRow*> rows(static_cast<std::size_t>(std::max(1, options.threads)));
  if (options.trace == nullptr) return rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = &options.trace->row(fmt::format("{} {}", options.trace_row, i));
  }
  return rows;
}

}  // namespace lockstep
