// Runs the kernels of device_kernels.hpp with 256 threads and a barrier, under ThreadSanitizer,
// which ends the program at a race. Without arguments also with each barrier left out, in a process
// of its own, where a race or a wrong result must be found. launch_race_test [LINE]: leaves out the
// barrier there.
#include <pthread.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Index {
  unsigned x = 0;
};
Index gridDim;
Index blockDim;
thread_local Index blockIdx;
thread_local Index threadIdx;

pthread_barrier_t threads_meet;
int omitted_line = 0;
std::set<int> barrier_lines;  // of thread 0

void meet(int line) {
  if (threadIdx.x == 0) barrier_lines.insert(line);
  if (line != omitted_line) pthread_barrier_wait(&threads_meet);
}

}  // namespace

#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() meet(__LINE__)
#include "../../../../src/engine/gpu/kernels/device_kernels.hpp"

namespace {

using lockstep::gpu::threads_per_block;

/// Runs the thread blocks of a grid one after another.
template <typename Kernel>
void run_grid(unsigned blocks, const Kernel& kernel) {
  gridDim.x = blocks;
  blockDim.x = threads_per_block;
  pthread_barrier_init(&threads_meet, nullptr, threads_per_block);
  for (unsigned block = 0; block < blocks; ++block) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < threads_per_block; ++thread) {
      threads.emplace_back([&kernel, block, thread] {
        blockIdx.x = block;
        threadIdx.x = thread;
        kernel();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  pthread_barrier_destroy(&threads_meet);
}

/// Partial results whose merges do not commute, as the order of merges is part of the result.
struct Partial {
  std::uint64_t hash = 0;
  void merge(const Partial& other) { hash = hash * 31 + other.hash; }
};
std::uint64_t value(std::int64_t block, int column, int lane) {
  return static_cast<std::uint64_t>(block * 1'000'003 + column * 257 + lane + 1);
}
struct Hash {
  using Partial = ::Partial;
  int columns;
  std::uint64_t* results;
  [[nodiscard]] Partial partial(std::int64_t block, int column, int lane) const {
    return {value(block, column, lane)};
  }
  void finish(std::int64_t block, int column, const Partial& total) const {
    results[block * columns + column] += total.hash;
  }
};
std::uint64_t expected(std::int64_t block, int column, int columns) {
  std::vector<Partial> lanes;
  for (int lane = 0; lane < threads_per_block / columns; ++lane) {
    lanes.push_back({value(block, column, lane)});
  }
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i].merge(lanes[i + half]);
  }
  return lanes.front().hash;
}

/// More blocks than the grid has.
bool blocks_are_right() {
  constexpr std::int64_t blocks = 3;
  constexpr int columns = 4;
  std::vector<std::uint64_t> results(blocks * columns);
  run_grid(2, [&] { lockstep::gpu::run_blocks(blocks, columns, Hash{columns, results.data()}); });
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (int column = 0; column < columns; ++column) {
      if (results[static_cast<std::size_t>(block * columns + column)] ==
          expected(block, column, columns)) {
        continue;
      }
      std::fprintf(stderr, "block %d, column %d is wrong\n", static_cast<int>(block), column);
      return false;
    }
  }
  return true;
}
/// Rows that do not fill the last block of a grid's second round. Each lane gets the result.
struct HashRows {
  using Partial = ::Partial;
  int lanes;
  std::uint64_t* results;
  [[nodiscard]] Partial partial(std::int64_t row, int lane) const { return {value(row, 0, lane)}; }
  void finish(std::int64_t row, int lane, const Partial& total) const {
    results[row * lanes + lane] += total.hash;
  }
};
bool rows_are_right() {
  constexpr std::int64_t rows = 27;
  constexpr int lanes = 32;
  std::vector<std::uint64_t> results(rows * lanes);
  run_grid(2, [&] { lockstep::gpu::run_rows(rows, lanes, HashRows{lanes, results.data()}); });
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i / lanes);
    if (results[i] == expected(row, 0, threads_per_block / lanes)) continue;
    std::fprintf(stderr, "row %d is wrong\n", static_cast<int>(row));
    return false;
  }
  return true;
}
/// Items that do not fill the last block of a grid's third round.
bool items_run_once() {
  constexpr std::size_t items = 1300;
  std::vector<int> runs(items + threads_per_block);
  run_grid(2, [&] {
    lockstep::gpu::run_items(
        items, [&runs](std::int64_t item) { ++runs[static_cast<std::size_t>(item)]; });
  });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i] == (i < items ? 1 : 0)) continue;
    std::fprintf(stderr, "item %zu of %zu ran %d times\n", i, items, runs[i]);
    return false;
  }
  return true;
}

}  // namespace

extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:exitcode=66";
}

int main(int argc, char** argv) {
  if (argc > 1) omitted_line = std::atoi(argv[1]);
  if (!blocks_are_right() || !rows_are_right() || !items_run_once()) return 1;
  if (argc > 1) return 0;
  int races_missed = 0;
  for (const int line : barrier_lines) {
    const std::string command = std::string(argv[0]) + " " + std::to_string(line) + " 2>/dev/null";
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 66 || WEXITSTATUS(status) == 1)) continue;
    std::fprintf(stderr, "without the barrier in line %d nothing goes wrong\n", line);
    ++races_missed;
  }
  std::printf("%zu barriers are needed, and no more\n", barrier_lines.size());
  return races_missed == 0 && !barrier_lines.empty() ? 0 : 1;
}
