#include "lockstep/runtime/watchdog.hpp"

#include "async_logger.hpp"
#include "join_tree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "tree.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using watch::RankReport;
using State = RankReport::State;

/// How long the other ranks give the rank that found the fault to abort the job.
constexpr auto abort_timeout = 10s;
/// Most losses that are forwarded: when a job is killed, all ranks die one by one.
constexpr std::size_t most_losses = 8;
/// How long to wait for the reason to be logged before the job ends anyway.
constexpr auto logging_timeout = 3s;

/// MPI_Abort should be called by the thread that initialized MPI, but that thread hangs. If
/// MPI_Abort hangs too, the process exits after a while.
void abort_from_any_thread() {
  std::thread([] {
    std::this_thread::sleep_for(5s);
    std::_Exit(static_cast<int>(ExitStatus::internal));
  }).detach();
  abort_job(static_cast<int>(ExitStatus::internal));
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
        logger_(options_.cores) {
    if (!options_.end_job) options_.end_job = abort_from_any_thread;
    watch::JoinedTree joined = watch::join_tree(
        comm, grid, {.fan_out = options_.fan_out, .interface = options_.interface});
    parents_ = joined.options.parents;
    tree_.emplace(std::move(joined.options), std::move(joined.listener));
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
  void log_to(Log log) { logger_.log_to(std::move(log)); }

 private:
  /// A failure of the watchdog must not end the job.
  void run() noexcept {
    try {
      loop();
    } catch (const std::exception& error) {
      disable(error.what());
    } catch (...) {
      disable("an unknown error");
    }
  }

  /// Stops the watchdogs of all ranks, since a rank without one could appear to hang.
  void disable(const char* reason) noexcept {
    try {
      const std::string why = fmt::format(
          "the watchdog is disabled (that of rank {} failed: {}); training goes on without it",
          rank_, reason);
      logger_.warn(why);
      logger_.log(why);
      tree_->tell_above(watch::MessageKind::disabled, why);
      tree_->tell_below(watch::MessageKind::disabled, why);
      tree_->drain(500ms);
    } catch (...) {
      // The other ranks then get no notice.
    }
  }

  void loop() {
    watch::step_aside(options_.cores);
    const auto tick = std::chrono::milliseconds(static_cast<int>(1000 * tick_));
    auto next = std::chrono::steady_clock::now();
    while (!stopping_ && !disabled_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          next - std::chrono::steady_clock::now());
      const auto events = tree_->exchange(wake_.get(), std::clamp(left, 0ms, tick), clock_);
      for (const auto& event : events) handle(event);
      if (std::chrono::steady_clock::now() < next) continue;
      next = std::chrono::steady_clock::now() + tick;
      if (options_.on_tick) options_.on_tick();
      tree_->publish(own_report(), clock_.now());
      if (ended_) {
        if (abort_at_ && std::chrono::steady_clock::now() > *abort_at_) options_.end_job();
      } else if (const auto why = reason_to_end()) {
        end(*why, true);
      }
    }
    if (!disabled_) tree_->say_goodbye();
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
      case Kind::unreachable:
        logger_.log(
            fmt::format("{} is unreachable (the connection of its watchdog broke: {}); it "
                        "may connect again",
                        name(event.rank), event.text));
        break;
      case Kind::reachable:
        logger_.log(name(event.rank) + " is reachable again");
        forget_loss(event.rank, rank_);
        break;
      case Kind::lost:
        note_loss({.rank = event.rank, .text = describe_loss(event.rank)}, rank_);
        break;
      case Kind::told_of_loss:
        note_loss({.rank = event.rank, .text = event.text}, event.from);
        break;
      case Kind::told_of_return:
        if (forget_loss(event.rank, event.from)) {
          logger_.log(name(event.rank) + " is reachable again");
        }
        break;
      case Kind::told_of_failure:
        if (ended_) break;
        logger_.log(event.text);
        if (event.from > rank_) tree_->tell_above(watch::MessageKind::disabled, event.text);
        tree_->tell_below(watch::MessageKind::disabled, event.text);
        disabled_ = true;
        break;
      case Kind::verdict:
        if (!ended_) end(event.text, false);
        break;
      case Kind::never_connected:
        logger_.log(
            fmt::format("the watchdog of {} is out of reach (no connection within a minute): that "
                        "of rank {} watches alone",
                        name(event.rank), rank_));
        break;
    }
  }

  [[nodiscard]] std::string describe_loss(int rank) {
    const auto reports = tree_->reports(clock_.now());
    return watch::describe_loss(reports[static_cast<std::size_t>(rank)], name(rank));
  }

  /// `from`: the rank that reported the loss; this rank if it detected the loss itself.
  void note_loss(const watch::RankText& loss, int from) {
    if (ended_ || losses_.contains(loss.rank)) return;
    logger_.log(loss.text);
    const std::string payload = watch::to_payload(loss);
    if (loss.rank > rank_ && from >= rank_) tree_->tell_above(watch::MessageKind::loss, payload);
    if (losses_.size() >= most_losses) return;
    const bool first = losses_.empty();
    losses_.insert(loss.rank);
    tree_->tell_below(watch::MessageKind::loss, payload);
    // Rank 0 prints for all ranks; rank 1 prints the loss of rank 0.
    if (first && (rank_ == 0 || (rank_ == 1 && loss.rank == 0))) logger_.print(loss.text);
  }

  /// Returns whether the loss was known.
  bool forget_loss(int rank, int from) {
    if (losses_.erase(rank) == 0) return false;
    const std::string payload = watch::to_payload({.rank = rank, .text = {}});
    if (rank > rank_ && from >= rank_) tree_->tell_above(watch::MessageKind::found, payload);
    tree_->tell_below(watch::MessageKind::found, payload);
    return true;
  }

  [[nodiscard]] bool parent_has_left(const std::vector<RankReport>& reports) const {
    if (rank_ == 0) return false;
    const int parent = parents_[static_cast<std::size_t>(rank_)];
    return reports[static_cast<std::size_t>(parent)].state == State::left;
  }
  /// Only rank 0 receives reports of all ranks; other ranks ignore those they have none of.
  static void ignore_unheard(std::vector<RankReport>& reports) {
    for (RankReport& report : reports) {
      if (report.state == State::unheard) report.state = State::left;
    }
  }

  /// The reason why the job must end; nullopt: it continues.
  [[nodiscard]] std::optional<std::string> reason_to_end() {
    auto reports = tree_->reports(clock_.now());
    double limit = options_.limit.count();
    const double loss_limit = std::min(limit, options_.loss_limit.count());
    if (parent_has_left(reports)) {
      // The ranks above have left in order, so only this rank can judge those below it.
      ignore_unheard(reports);
    } else if (rank_ != 0) {
      // Rank 0 judges unless it is stopped or gone itself.
      const RankReport& first = reports.front();
      const bool gone = first.state == State::lost;
      const bool silent = first.present() && first.silent >= limit;
      const double factor = rank_ == 1 ? 1 : 1.5;  // rank 1 judges first: one verdict is enough
      const double idle = reports[static_cast<std::size_t>(rank_)].idle;
      if (!gone && !silent) return std::nullopt;
      if (idle < factor * (gone ? loss_limit : limit)) return std::nullopt;
      if (gone) return describe_loss(0);
      limit *= factor;
      ignore_unheard(reports);
    }
    const auto lost = std::ranges::find(reports, State::lost, &RankReport::state);
    if (lost != reports.end() && watch::idle_seconds(reports) >= loss_limit) {
      return describe_loss(lost->rank);
    }
    const std::lock_guard lock(mutex_);
    return watch::judge(reports, names_, {.limit = limit, .parents = parents_});
  }

  /// Reports why and ends the job, here or on the rank that found the fault.
  void end(const std::string& why, bool found_here) {
    ended_ = true;
    tree_->tell_below(watch::MessageKind::verdict, why);
    if (found_here) logger_.print(why);
    logger_.log(why);
    tree_->drain(500ms);
    if (found_here) {
      logger_.wait(logging_timeout);
      options_.end_job();
      return;
    }
    abort_at_ = std::chrono::steady_clock::now() + abort_timeout;
  }

  [[nodiscard]] std::string name(int rank) {
    const std::lock_guard lock(mutex_);
    return names_[static_cast<std::size_t>(rank)];
  }

  const PhaseBoard& board_;
  WatchdogOptions options_;
  int rank_;
  double tick_;  ///< seconds between two checks
  watch::WatchClock clock_;
  Descriptor wake_;
  std::vector<int> parents_;  ///< by rank, in the tree
  std::optional<watch::Tree> tree_;

  std::mutex mutex_;
  std::vector<std::string> names_;  ///< by rank; guarded by mutex_
  watch::AsyncLogger logger_;

  // Used only by the watchdog's thread.
  std::uint64_t last_moves_ = 0;
  double last_move_ = 0;
  std::set<int> losses_;  ///< ranks whose loss was forwarded
  bool ended_ = false;
  bool disabled_ = false;
  std::optional<std::chrono::steady_clock::time_point> abort_at_;

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

std::chrono::milliseconds wait_limit_beside(std::chrono::duration<double> limit) noexcept {
  // Short enough to add to a clock's time without overflow.
  constexpr std::chrono::hours for_ever(24 * 3650);
  constexpr std::chrono::minutes least(30);
  // If rank 0 cannot judge, other ranks do so later; both happen well before this limit.
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
