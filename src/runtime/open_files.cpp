#include "lockstep/runtime/open_files.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep {
namespace {

/// Programs that we start close every descriptor up to the limit, which takes long if it is in the
/// millions.
constexpr rlim_t enough = 32768;

}  // namespace

void raise_open_file_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, enough);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, fewer shards stay open
}

}  // namespace lockstep
