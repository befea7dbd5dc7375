#include "lockstep/runtime/thread_binding.hpp"

#include "lockstep/core/address_space.hpp"
#include "lockstep/runtime/signals.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <latch>
#include <sstream>
#include <thread>

namespace lockstep {
namespace {

/// CPU_ALLOC's sets, for machines with more than the 1024 cores of a plain cpu_set_t.
class CoreSet final {
 public:
  explicit CoreSet(int cores)
      : set_(CPU_ALLOC(static_cast<std::size_t>(cores))),
        bytes_(CPU_ALLOC_SIZE(static_cast<std::size_t>(cores))) {
    if (set_ != nullptr) CPU_ZERO_S(bytes_, set_);
  }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;
  ~CoreSet() { CPU_FREE(set_); }

  [[nodiscard]] bool read() noexcept {
    return set_ != nullptr && sched_getaffinity(0, bytes_, set_) == 0;
  }
  void apply() const noexcept {
    // Errors are ignored: pinning only affects speed.
    if (set_ != nullptr) static_cast<void>(sched_setaffinity(0, bytes_, set_));
  }
  void add(int core) noexcept {
    if (set_ != nullptr) CPU_SET_S(static_cast<std::size_t>(core), bytes_, set_);
  }
  [[nodiscard]] bool holds(int core) const noexcept {
    return CPU_ISSET_S(static_cast<std::size_t>(core), bytes_, set_) != 0;
  }

 private:
  cpu_set_t* set_;
  std::size_t bytes_;
};

constexpr int most_cores = 65536;

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

std::vector<int> parse_cores(const std::string& text) {
  std::istringstream stream(text);
  std::vector<int> cores;
  for (int core = 0; stream >> core;) cores.push_back(core);
  return cores;
}

/// Throws if so many more threads cannot run at once: OpenMP would end the process.
void require_threads(int count) {
  std::latch finished(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&finished] { finished.wait(); });
  } catch (...) {
    finished.count_down();
    throw;
  }
  finished.count_down();
}

}  // namespace

std::vector<int> affinity_mask() {
  std::vector<int> cores;
  if (omp_get_proc_bind() != omp_proc_bind_false) {
    // OMP_PROC_BIND has already bound this thread to one place; the rank may use all places.
    for (int place = 0; place < omp_get_num_places(); ++place) {
      std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
      omp_get_place_proc_ids(place, ids.data());
      cores.insert(cores.end(), ids.begin(), ids.end());
    }
    std::sort(cores.begin(), cores.end());
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    return cores;
  }
  CoreSet set(most_cores);
  if (!set.read()) return cores;
  for (int core = 0; core < most_cores; ++core) {
    if (set.holds(core)) cores.push_back(core);
  }
  return cores;
}

std::string core_list(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(cores[i]) : fmt::format("{}-{}", cores[i], cores[last]);
    i = last + 1;
  }
  return text;
}

ThreadBinding plan_threads(const ThreadRequest& request) {
  const auto& mine = request.masks[static_cast<std::size_t>(request.local_rank)];
  std::size_t sharing = 0;
  std::size_t my_turn = 0;
  bool all_alike = true;
  for (std::size_t rank = 0; rank < request.masks.size(); ++rank) {
    if (!overlap(mine, request.masks[rank])) continue;
    if (rank < static_cast<std::size_t>(request.local_rank)) ++my_turn;
    ++sharing;
    all_alike = all_alike && request.masks[rank] == mine;
  }
  ThreadBinding binding;
  if (mine.empty()) {
    binding.threads = std::max(1, request.requested);
    binding.text = fmt::format("{} thread{}, not pinned (the system tells no affinity mask)",
                               binding.threads, binding.threads == 1 ? "" : "s");
    return binding;
  }
  const std::size_t share = std::max<std::size_t>(1, mine.size() / sharing);
  binding.allowed = mine;
  binding.share = static_cast<int>(share);
  binding.threads = request.requested > 0 ? request.requested : static_cast<int>(share);
  const auto wanted = static_cast<std::size_t>(binding.threads);
  const std::size_t begin = my_turn * share;
  // Other programs may run on a node whose cores nobody has divided; pinned to its first cores,
  // this rank would share them while others are idle.
  const bool leaves_cores = wanted < share && static_cast<int>(mine.size()) == request.node_cores;
  // With partly overlapping masks, two ranks could be pinned to the same cores.
  if (all_alike && sharing <= mine.size() && wanted <= share && !leaves_cores) {
    const auto first = mine.begin() + static_cast<std::ptrdiff_t>(begin);
    binding.cores.assign(first, first + static_cast<std::ptrdiff_t>(wanted));
  }
  const char* const plural = binding.threads == 1 ? "" : "s";
  if (!binding.cores.empty()) {
    binding.text = fmt::format("{} thread{} on core{} {}", binding.threads, plural, plural,
                               core_list(binding.cores));
  } else if (sharing == 1) {
    binding.text = fmt::format("{} thread{}, not pinned, on cores {}", binding.threads, plural,
                               core_list(mine));
  } else {
    binding.text = fmt::format("{} thread{}, not pinned ({} ranks share cores {})", binding.threads,
                               plural, sharing, core_list(mine));
  }
  const auto all_local = static_cast<int>(request.masks.size());
  if (mine.size() == 1 && request.requested == 0 && request.node_cores >= 2 * all_local) {
    binding.warning = fmt::format(
        "local rank {} may use one core of the node's {} (the launcher bound it to core {}); start "
        "with mpirun --bind-to none, or srun --cpus-per-task={}",
        request.local_rank, request.node_cores, mine.front(), request.node_cores / all_local);
  }
  return binding;
}

void allow_cores(std::span<const int> cores) noexcept {
  if (cores.empty()) return;
  CoreSet set(*std::max_element(cores.begin(), cores.end()) + 1);
  for (const int core : cores) set.add(core);
  set.apply();
}

ThreadBinding bind_threads(const ProcessGrid& grid, Communicator& comm, int requested) {
  ThreadRequest request{.masks = {},
                        .local_rank = grid.local_rank,
                        .requested = requested,
                        .node_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))};
  // Only between ranks of a node: a mask of a large node is as long as a configuration.
  const auto node = comm.split(grid.node, comm.rank());
  for (const std::string& text :
       all_gather_text(*node, fmt::format("{}", fmt::join(affinity_mask(), " ")))) {
    request.masks.push_back(parse_cores(text));
  }
  ThreadBinding binding = plan_threads(request);
  collectively(comm, [&] {
    const int more = binding.threads - 1;
    require_address_space(static_cast<std::uint64_t>(more) * thread_address_space(),
                          fmt::format("for {} compute threads", binding.threads));
    require_threads(more);
  });
  omp_set_num_threads(binding.threads);
  // Also without cores to bind to: the threads start here, before others use up a limit.
#pragma omp parallel num_threads(binding.threads)
  {
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    if (!binding.cores.empty()) allow_cores(std::span(&binding.cores[thread], 1));
  }
  return binding;
}

void become_helper_thread(std::span<const int> cores) noexcept {
  block_signals();
  allow_cores(cores);
}

void become_background_thread(std::span<const int> cores) noexcept {
  constexpr int polite = 10;
  become_helper_thread(cores);
  // On Linux each thread has a separate nice value. Errors are ignored.
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), polite));
}

}  // namespace lockstep
