#include "lockstep/runtime/watchdog.hpp"

#include "addresses.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using watch::RankReport;
using State = RankReport::State;

/// What a rank lets the others abort the job in, before it does so itself.
constexpr auto abort_patience = 10s;

/// MPI_Abort is made for the thread that started MPI, which hangs; should it hang too, the process
/// ends all the same.
void abort_from_any_thread() {
  std::thread([] {
    std::this_thread::sleep_for(5s);
    std::_Exit(static_cast<int>(ExitStatus::internal));
  }).detach();
  abort_job(static_cast<int>(ExitStatus::internal));
}

/// In one call, so that ranks' lines do not mix.
void print_line(const std::string& text) {
  const std::string line = fmt::format("lockstep: error: {}\n", text);
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

/// How a rank introduces itself to the others: "host node port address address".
struct Introduction {
  std::string host;
  int node = 0;
  watch::Endpoint endpoint;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} {} {} {}", host, node, endpoint.port,
                       fmt::join(endpoint.addresses, " "));
  }
  static Introduction parse(const std::string& text) {
    std::istringstream stream(text);
    Introduction result;
    stream >> result.host >> result.node >> result.endpoint.port;
    for (std::string address; stream >> address;) result.endpoint.addresses.push_back(address);
    return result;
  }
};

std::uint64_t new_job_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

}  // namespace

class Watchdog::Impl final {
 public:
  Impl(Communicator& comm, const ProcessGrid& grid, PhaseBoard& board, WatchdogOptions options)
      : board_(board),
        options_(std::move(options)),
        rank_(comm.rank()),
        tick_(std::clamp(options_.limit.count() / 8, 0.05, 1.0)),
        clock_(std::max(4 * tick_, 0.5)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!options_.end_job) options_.end_job = abort_from_any_thread;
    make_tree(comm, grid);
    thread_ = std::thread([this] { run(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    stopping_ = true;
    [[maybe_unused]] const int ignored = ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }

  void name_ranks(std::vector<std::string> names) {
    const std::lock_guard lock(mutex_);
    names_ = std::move(names);
  }
  void log_to(Log log) {
    const std::lock_guard lock(mutex_);
    log_ = std::move(log);
  }

 private:
  void make_tree(Communicator& comm, const ProcessGrid& grid) {
    std::optional<watch::Listener> listener;
    Introduction mine{
        .host = grid.host.empty() ? "this host" : grid.host, .node = grid.node, .endpoint = {}};
    const bool has_below = rank_ * std::int64_t{options_.fan_out} + 1 < comm.size();
    collectively(comm, [&] {
      if (!has_below) return;
      listener.emplace();
      mine.endpoint = {.addresses = watch::own_addresses(), .port = listener->port()};
    });
    std::uint64_t job = rank_ == 0 ? new_job_number() : 0;
    comm.broadcast(std::span(&job, 1));
    watch::TreeOptions tree{
        .rank = rank_, .size = comm.size(), .fan_out = options_.fan_out, .job = job, .parent = {}};
    const int parent = watch::parent_of(rank_, options_.fan_out);
    for (const std::string& text : all_gather_text(comm, mine.text())) {
      const Introduction introduction = Introduction::parse(text);
      const auto rank = static_cast<int>(names_.size());
      names_.push_back(fmt::format("rank {} ({})", rank, introduction.host));
      if (rank != parent) continue;
      tree.parent = introduction.endpoint;
      if (introduction.node == grid.node) {
        tree.parent.addresses.insert(tree.parent.addresses.begin(), "127.0.0.1");
      }
    }
    tree_.emplace(std::move(tree), std::move(listener));
  }

  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // they are the training thread's
    allow_cores(options_.cores);
    const auto tick = std::chrono::milliseconds(static_cast<int>(1000 * tick_));
    auto next = std::chrono::steady_clock::now();
    while (!stopping_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          next - std::chrono::steady_clock::now());
      const auto events = tree_->exchange(wake_.get(), std::clamp(left, 0ms, tick), clock_.now());
      clock_.look();
      for (const auto& event : events) handle(event);
      if (std::chrono::steady_clock::now() < next) continue;
      next = std::chrono::steady_clock::now() + tick;
      tree_->publish(own_report(), clock_.now());
      if (ended_) {
        if (abort_at_ && std::chrono::steady_clock::now() > *abort_at_) options_.end_job();
      } else if (const auto why = look_after()) {
        end(*why, true);
      }
    }
    tree_->say_goodbye();
    tree_->drain(200ms);
  }

  [[nodiscard]] RankReport own_report() {
    RankReport mine{.reading = board_.read(), .rank = rank_, .state = State::running};
    if (mine.reading.moves != last_moves_) {
      last_moves_ = mine.reading.moves;
      last_move_ = clock_.now();
    }
    mine.idle = clock_.now() - last_move_;
    return mine;
  }

  void handle(const watch::Tree::Event& event) {
    using Kind = watch::Tree::Event::Kind;
    switch (event.kind) {
      case Kind::lost: {
        const auto reports = tree_->reports(clock_.now());
        const auto& report = reports[static_cast<std::size_t>(event.rank)];
        lost_first_ = lost_first_ || event.rank == 0;
        note_loss(watch::describe_loss(report, name(event.rank)), event.rank);
        break;
      }
      case Kind::told_of_loss:
        note_loss(event.text, event.rank);
        break;
      case Kind::verdict:
        if (!ended_) end(event.text, false);
        break;
      case Kind::unreachable:
        log(
            fmt::format("the watchdog of {} is out of reach (no connection within a minute): that "
                        "of rank {} watches alone",
                        name(event.rank), rank_));
        break;
    }
  }

  /// `rank`: who was lost, or who told of it.
  void note_loss(const std::string& text, int rank) {
    if (ended_ || loss_ == text) return;
    log(text);
    const bool first = loss_.empty();
    if (rank > rank_) tree_->tell_above(text);
    if (!first) return;  // when a job is killed, ranks go one after the other
    loss_ = text;
    tree_->tell_below(watch::MessageKind::loss, text);
    // Rank 0 speaks for all; of its own end, the first below it.
    if (rank_ == 0 || (rank_ == 1 && lost_first_)) print_line(text);
  }

  /// Why the job has to end, where it does.
  [[nodiscard]] std::optional<std::string> look_after() {
    auto reports = tree_->reports(clock_.now());
    double limit = options_.limit.count();
    const double loss_limit = std::min(limit, options_.loss_limit.count());
    if (rank_ != 0) {
      // Rank 0 judges, unless it is the one that is stopped or gone.
      const RankReport& first = reports.front();
      const bool gone = first.state == State::lost;
      const bool silent = first.state == State::running && first.silent >= limit;
      const double patience = rank_ == 1 ? 1 : 1.5;  // one is enough
      const double idle = reports[static_cast<std::size_t>(rank_)].idle;
      if (!gone && !silent) return std::nullopt;
      if (idle < patience * (gone ? loss_limit : limit)) return std::nullopt;
      if (gone) return loss_;
      limit *= patience;
      for (RankReport& report : reports) {
        // Rank 0 alone hears of those.
        if (report.state == State::unheard) report.state = State::left;
      }
    }
    if (!loss_.empty() && watch::idle_seconds(reports) >= loss_limit) return loss_;
    const std::lock_guard lock(mutex_);
    return watch::judge(reports, names_, {.limit = limit, .fan_out = options_.fan_out});
  }

  /// Tells why, and ends the job: here, or by the rank that found the fault.
  void end(const std::string& why, bool found_here) {
    ended_ = true;
    log(why);
    tree_->tell_below(watch::MessageKind::verdict, why);
    if (found_here) {
      print_line(why);
      tree_->drain(500ms);
      options_.end_job();
      return;
    }
    tree_->drain(500ms);
    abort_at_ = std::chrono::steady_clock::now() + abort_patience;
  }

  [[nodiscard]] std::string name(int rank) {
    const std::lock_guard lock(mutex_);
    return names_[static_cast<std::size_t>(rank)];
  }
  void log(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (log_) log_("watchdog: " + text);
  }

  const PhaseBoard& board_;
  WatchdogOptions options_;
  int rank_;
  double tick_;  ///< seconds between two looks
  watch::WatchClock clock_;
  Descriptor wake_;
  std::optional<watch::Tree> tree_;

  std::mutex mutex_;
  std::vector<std::string> names_;  ///< by rank; guarded by mutex_
  Log log_;                         ///< guarded by mutex_

  // The thread's own.
  std::uint64_t last_moves_ = 0;
  double last_move_ = 0;
  std::string loss_;         ///< of the first rank that was lost
  bool lost_first_ = false;  ///< rank 0
  bool ended_ = false;
  std::optional<std::chrono::steady_clock::time_point> abort_at_;

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Watchdog::Watchdog(Communicator& comm, const ProcessGrid& grid, PhaseBoard& board,
                   WatchdogOptions options) {
  if (options.limit.count() > 0) {
    impl_ = std::make_unique<Impl>(comm, grid, board, std::move(options));
  }
}
Watchdog::~Watchdog() = default;

void Watchdog::name_ranks(std::vector<std::string> names) {
  if (impl_) impl_->name_ranks(std::move(names));
}

void Watchdog::log_to(Log log) {
  if (impl_) impl_->log_to(std::move(log));
}

}  // namespace lockstep
