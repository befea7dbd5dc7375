#include "lockstep/runtime/watchdog.hpp"

#include "addresses.hpp"
#include "introduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "scribe.hpp"
#include "tree.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using watch::RankReport;
using State = RankReport::State;

/// What a rank lets the others abort the job in, before it does so itself.
constexpr auto abort_patience = 10s;
/// For the reason to be written, before the job ends all the same.
constexpr auto writing_patience = 3s;

/// MPI_Abort is made for the thread that started MPI, which hangs; should it hang too, the process
/// ends all the same.
void abort_from_any_thread() {
  std::thread([] {
    std::this_thread::sleep_for(5s);
    std::_Exit(static_cast<int>(ExitStatus::internal));
  }).detach();
  abort_job(static_cast<int>(ExitStatus::internal));
}

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
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        names_(options_.names),
        scribe_(options_.cores) {
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
  void log_to(Log log) { scribe_.log_to(std::move(log)); }

 private:
  void make_tree(Communicator& comm, const ProcessGrid& grid) {
    std::optional<watch::Listener> listener;
    watch::Introduction mine{.node = grid.node, .endpoint = {}};
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
    const std::vector<std::string> introductions = all_gather_text(comm, mine.text());
    if (parent >= 0) {
      const auto introduction =
          watch::Introduction::parse(introductions[static_cast<std::size_t>(parent)]);
      tree.parent = introduction.endpoint;
      if (introduction.node == grid.node) {
        tree.parent.addresses.insert(tree.parent.addresses.begin(), "127.0.0.1");
      }
    }
    tree_.emplace(std::move(tree), std::move(listener));
  }

  void run() {
    watch::step_aside(options_.cores);
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
        scribe_.log(
            fmt::format("the watchdog of {} is out of reach (no connection within a minute): that "
                        "of rank {} watches alone",
                        name(event.rank), rank_));
        break;
    }
  }

  /// `rank`: who was lost, or who told of it.
  void note_loss(const std::string& text, int rank) {
    if (ended_ || loss_ == text) return;
    scribe_.log(text);
    const bool first = loss_.empty();
    if (rank > rank_) tree_->tell_above(text);
    if (!first) return;  // when a job is killed, ranks go one after the other
    loss_ = text;
    tree_->tell_below(watch::MessageKind::loss, text);
    // Rank 0 speaks for all; of its own end, the first below it.
    if (rank_ == 0 || (rank_ == 1 && lost_first_)) scribe_.print(text);
  }

  [[nodiscard]] bool parted_from_above(const std::vector<RankReport>& reports) const {
    if (rank_ == 0) return false;
    const int parent = watch::parent_of(rank_, options_.fan_out);
    return reports[static_cast<std::size_t>(parent)].state == State::left;
  }
  /// Rank 0 alone hears of all.
  static void leave_out_unheard(std::vector<RankReport>& reports) {
    for (RankReport& report : reports) {
      if (report.state == State::unheard) report.state = State::left;
    }
  }

  /// Why the job has to end, where it does.
  [[nodiscard]] std::optional<std::string> look_after() {
    auto reports = tree_->reports(clock_.now());
    double limit = options_.limit.count();
    const double loss_limit = std::min(limit, options_.loss_limit.count());
    if (parted_from_above(reports)) {
      // The ranks above have left in order: nobody else can tell who of these stays behind.
      leave_out_unheard(reports);
    } else if (rank_ != 0) {
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
      leave_out_unheard(reports);
    }
    if (!loss_.empty() && watch::idle_seconds(reports) >= loss_limit) return loss_;
    const std::lock_guard lock(mutex_);
    return watch::judge(reports, names_, {.limit = limit, .fan_out = options_.fan_out});
  }

  /// Tells why, and ends the job: here, or by the rank that found the fault.
  void end(const std::string& why, bool found_here) {
    ended_ = true;
    tree_->tell_below(watch::MessageKind::verdict, why);
    if (found_here) scribe_.print(why);
    scribe_.log(why);
    tree_->drain(500ms);
    if (found_here) {
      scribe_.wait(writing_patience);
      options_.end_job();
      return;
    }
    abort_at_ = std::chrono::steady_clock::now() + abort_patience;
  }

  [[nodiscard]] std::string name(int rank) {
    const std::lock_guard lock(mutex_);
    return names_[static_cast<std::size_t>(rank)];
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
  watch::Scribe scribe_;

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

std::chrono::milliseconds wait_limit_beside(std::chrono::duration<double> limit) noexcept {
  // No longer than a clock can add.
  constexpr std::chrono::hours for_ever(24 * 3650);
  constexpr std::chrono::minutes least(30);
  // Where rank 0 cannot judge, the others do so later; both are well before this.
  constexpr double factor = 2 * watch::unhurried_factor;
  const auto longest = factor * limit;
  if (limit.count() <= 0 || longest >= for_ever) return for_ever;
  return std::max<std::chrono::milliseconds>(
      least, std::chrono::duration_cast<std::chrono::milliseconds>(longest));
}

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
