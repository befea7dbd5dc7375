// How many lines a large job prints when ranks die: processes with watchdogs, without MPI.
#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/topology.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/element_size.hpp"
#include "lockstep/runtime/sockets.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int ranks = 32;
#else
constexpr int ranks = 256;
#endif
constexpr int per_node = 8;

/// Memory that all processes of the job share.
struct Shared {
  pthread_barrier_t barrier;
  std::atomic<int> connected;  ///< ranks with all their connections
  std::atomic<int> failing;    ///< 1: all ranks fail now
  std::atomic<int> ended;      ///< ranks that ended the job
  std::array<std::byte, std::size_t{ranks} * 1024> bytes;
};

/// Only the collectives that a Watchdog's constructor needs.
class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return ranks; }
  void barrier() override { pthread_barrier_wait(&shared_.barrier); }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    const std::size_t bytes = buffer.count * size_of(buffer.type);
    if (rank_ == root) std::memcpy(shared_.bytes.data(), buffer.data, bytes);
    barrier();
    std::memcpy(buffer.data, shared_.bytes.data(), bytes);
    barrier();
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const std::size_t bytes = mine.count * size_of(mine.type);
    if (bytes * ranks > shared_.bytes.size()) std::abort();
    std::memcpy(shared_.bytes.data() + static_cast<std::size_t>(rank_) * bytes, mine.data, bytes);
    barrier();
    std::memcpy(all.data, shared_.bytes.data(), ranks * bytes);
    barrier();
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    std::vector<std::int64_t> all(ranks);
    std::int64_t mine = 0;
    if (buffer.count != 1) std::abort();
    std::memcpy(&mine, buffer.data, size_of(buffer.type));
    all_gather(std::span<const std::int64_t>(&mine, 1), std::span(all));
    for (const std::int64_t each : all) {
      mine = op == ReduceOp::min ? std::min(mine, each) : std::max(mine, each);
    }
    std::memcpy(buffer.data, &mine, size_of(buffer.type));
  }
  void gather_buffer(ConstBuffer, MutableBuffer, int) override { std::abort(); }
  void scatter_buffer(ConstBuffer, MutableBuffer, int) override { std::abort(); }
  void reduce_scatter_buffer(ConstBuffer, MutableBuffer, ReduceOp) override { std::abort(); }
  Request start_all_reduce_buffer(MutableBuffer, ReduceOp) override { std::abort(); }
  Request start_reduce_scatter_buffer(ConstBuffer, MutableBuffer, ReduceOp) override {
    std::abort();
  }
  Request start_all_gather_buffer(ConstBuffer, MutableBuffer) override { std::abort(); }
  Request start_send_buffer(ConstBuffer, int) override { std::abort(); }
  Request start_receive_buffer(MutableBuffer, int) override { std::abort(); }
  std::unique_ptr<Communicator> split(int, int) override { std::abort(); }
  bool test(Request&) override { std::abort(); }
  void wait(Request&) override { std::abort(); }

 private:
  Shared& shared_;
  int rank_;
};

std::string name_of(int rank) {
  return fmt::format("rank {} (node{})", rank, rank / per_node);
}

/// This rank's connections in the tree.
std::size_t degree(int rank) {
  std::vector<int> nodes;
  for (int each = 0; each < ranks; ++each) nodes.push_back(each / per_node);
  const std::vector<int> parents = watch::tree_parents(nodes, WatchdogOptions{}.fan_out);
  return watch::children_of(rank, parents).size() + (rank == 0 ? 0 : 1);
}

std::size_t connections() {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (peer_with_port(std::stoi(entry.path().filename()), 0)) ++found;
  }
  return found;
}

/// A rank, in a process of its own.
void live(Shared& shared, int rank) {
  SharedCommunicator comm(shared, rank);
  PhaseBoard board;
  std::atomic<int> ticks = 0;
  std::vector<std::string> names;
  for (int each = 0; each < ranks; ++each) names.push_back(name_of(each));
  const ProcessGrid grid{.rank = rank,
                         .world_size = ranks,
                         .local_rank = rank % per_node,
                         .local_size = per_node,
                         .node = rank / per_node,
                         .nodes = 1,  // so that they connect by loopback
                         .host = {}};
  Watchdog watchdog(comm, grid, board,
                    {.limit = 4s,
                     .names = names,
                     .loss_limit = 1s,
                     .end_job = [&](ExitStatus) { ++shared.ended; },
                     .on_tick = [&] { ++ticks; }});
  board.begin_step(1);
  const auto move_until = [&](auto&& condition) {
    while (!condition()) {
      board.move();
      std::this_thread::sleep_for(20ms);
    }
  };
  move_until([&] { return connections() >= degree(rank); });
  ticks = 0;
  move_until([&] { return ticks >= 2; });  // the handshakes take less
  ++shared.connected;
  move_until([&] { return shared.connected == ranks; });
  while (shared.failing == 0) std::this_thread::sleep_for(20ms);
  static_cast<void>(watchdog.end_job(ExitStatus::internal, "ncclRemoteError"));
  std::this_thread::sleep_for(60s);
}

/// A job of many ranks, whose error output is kept.
class LargeJob final {
 public:
  LargeJob() {
    BOOST_REQUIRE(::pipe2(output_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BOOST_REQUIRE(memory != MAP_FAILED);
    shared_ = new (memory) Shared;
    pthread_barrierattr_t across_processes;
    pthread_barrierattr_init(&across_processes);
    pthread_barrierattr_setpshared(&across_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared_->barrier, &across_processes, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      processes_.push_back(::fork());
      if (processes_.back() != 0) continue;
      ::alarm(100);
      ::dup2(output_[1], STDERR_FILENO);
      live(*shared_, rank);
      ::_exit(0);
    }
    BOOST_REQUIRE(until([&] { return shared_->connected == ranks; }));
  }
  LargeJob(const LargeJob&) = delete;
  LargeJob& operator=(const LargeJob&) = delete;
  ~LargeJob() {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
    for (const int end : output_) ::close(end);
    ::munmap(shared_, sizeof(Shared));
  }

  void kill(int rank) { ::kill(processes_[static_cast<std::size_t>(rank)], SIGKILL); }
  void fail_all() { shared_->failing = 1; }
  /// Waits until the job ends; returns the lines printed until then, and for a second more.
  [[nodiscard]] std::vector<std::string> lines_until_its_end() {
    BOOST_TEST(until([&] { return shared_->ended > 0; }));
    std::this_thread::sleep_for(1s);
    std::string text(1 << 16, '\0');
    text.resize(static_cast<std::size_t>(
        std::max<ssize_t>(::read(output_[0], text.data(), text.size()), 0)));
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    BOOST_TEST(shared_->ended == 1);
    return lines;
  }

 private:
  template <typename Condition>
  [[nodiscard]] static bool until(Condition&& condition) {
    for (const auto end = std::chrono::steady_clock::now() + 60s;
         std::chrono::steady_clock::now() < end;) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  std::array<int, 2> output_{};
  Shared* shared_ = nullptr;
  std::vector<pid_t> processes_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_dead_rank_that_makes_all_others_fail_is_one_line) {
  LargeJob job;

  job.kill(19);
  job.fail_all();
  const auto lines = job.lines_until_its_end();

  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(lines[0].find("lockstep: error: " + name_of(19) + " is gone") == 0U, lines[0]);
}

BOOST_AUTO_TEST_CASE(the_dead_node_of_rank_0_is_one_line) {
  LargeJob job;

  for (int rank = 0; rank < per_node; ++rank) job.kill(rank);
  job.fail_all();
  const auto lines = job.lines_until_its_end();

  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(lines[0].find("lockstep: error: " + name_of(0) + " is gone") == 0U, lines[0]);
}

BOOST_AUTO_TEST_CASE(a_dead_node_whose_loss_makes_the_others_hang_is_one_line) {
  LargeJob job;

  for (int rank = 2 * per_node - 1; rank >= per_node; --rank) job.kill(rank);
  const auto lines = job.lines_until_its_end();

  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(lines[0].find("(node1) is gone") != std::string::npos, lines[0]);
}
