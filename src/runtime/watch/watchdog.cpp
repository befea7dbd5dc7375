#include "lockstep/runtime/watchdog.hpp"

#include "async_logger.hpp"
#include "failures.hpp"
#include "join_tree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exit_advice.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "topology.hpp"
#include "tree.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
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
/// How long a rank that failed waits until the reason is known; longer than a decision takes.
constexpr auto decision_timeout = 90s;
/// Seconds between two reports of this rank's failure, since a broken connection may lose one.
constexpr double repeat_seconds = 5;
constexpr std::size_t longest_failure = 4000;  ///< characters

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
    turn_ = watch::Turn(rank_, joined.deciders);
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

  bool end_job(ExitStatus status, const std::string& why) {
    logger_.log("this rank failed: " + why);
    std::unique_lock lock(mutex_);
    own_failure_ = {.rank = rank_, .status = status, .text = why.substr(0, longest_failure)};
    changed_.wait_for(lock, decision_timeout, [this] { return decided_ || stopped_; });
    return decided_;
  }

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
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
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
    become_helper_thread(options_.cores);
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
        if (abort_at_ && std::chrono::steady_clock::now() > *abort_at_) {
          options_.end_job(ExitStatus::internal);
        }
        continue;
      }
      report_own_failure();
      if (const auto ending = reason_to_end()) end(*ending, true);
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
        logger_.log(fmt::format(
            "{} is unreachable (the connection of its watchdog broke: {}); it may connect again",
            name(event.rank), event.text));
        break;
      case Kind::reachable:
        logger_.log(name(event.rank) + " is reachable again");
        forget_loss(event.rank, rank_);
        break;
      case Kind::lost:
      case Kind::lost_silently: {
        const bool silent = event.kind == Kind::lost_silently;
        if (event.rank == 0) rank_0_is_silent_ = silent;
        note_loss({.rank = event.rank, .text = describe_loss(event.rank, silent)}, rank_);
        break;
      }
      case Kind::told_of_loss:
        note_loss({.rank = event.rank, .text = event.text}, event.from);
        break;
      case Kind::told_of_return:
        if (forget_loss(event.rank, event.from)) {
          logger_.log(name(event.rank) + " is reachable again");
        }
        break;
      case Kind::told_of_error:
        note_failure({.rank = event.rank,
                      .status = static_cast<ExitStatus>(event.status),
                      .text = event.text});
        break;
      case Kind::told_of_failure:
        if (ended_) break;
        logger_.log(event.text);
        if (event.from > rank_) tree_->tell_above(watch::MessageKind::disabled, event.text);
        tree_->tell_below(watch::MessageKind::disabled, event.text);
        disabled_ = true;
        break;
      case Kind::verdict:
        if (!ended_) end({.text = event.text}, false);
        break;
      case Kind::never_connected:
        logger_.log(
            fmt::format("the watchdog of {} is out of reach (no connection within a minute): that "
                        "of rank {} watches alone",
                        name(event.rank), rank_));
        break;
    }
  }

  [[nodiscard]] std::string describe_loss(int rank, bool silent) {
    return watch::describe_loss(tree_->report(rank, clock_.now()), name(rank), silent);
  }

  void note_failure(const watch::Failure& failure) {
    failures_.add(failure, clock_.now());
    tree_->tell_above(watch::MessageKind::failure,
                      watch::to_payload({.rank = failure.rank,
                                         .status = static_cast<std::int32_t>(failure.status),
                                         .text = failure.text}));
  }

  void report_own_failure() {
    std::optional<watch::Failure> mine;
    {
      const std::lock_guard lock(mutex_);
      mine = own_failure_;
    }
    if (!mine || clock_.now() < next_report_) return;
    next_report_ = clock_.now() + repeat_seconds;
    note_failure(*mine);
  }

  /// `from`: the rank that reported the loss; this rank if it detected the loss itself.
  void note_loss(const watch::RankText& loss, int from) {
    if (ended_ || losses_.contains(loss.rank)) return;
    logger_.log(loss.text);
    const std::string payload = watch::to_payload(loss);
    if (loss.rank > rank_ && from >= rank_) tree_->tell_above(watch::MessageKind::loss, payload);
    if (losses_.size() >= most_losses) return;
    losses_.emplace(loss.rank, loss.text);
    tree_->tell_below(watch::MessageKind::loss, payload);
    // Rank 0 prints for all ranks, and the next rank in turn prints the loss of rank 0. If rank 0
    // is only silent, this rank's own node may be cut off.
    const bool replaces_it = loss.rank == 0 && turn_.is_next() && !rank_0_is_silent_;
    if (!printed_ && (rank_ == 0 || replaces_it)) {
      printed_ = loss.rank;
      logger_.print(fmt::format("{} {}", loss.text, advice_after(ExitStatus::internal)));
    }
  }

  /// Returns whether the loss was known.
  bool forget_loss(int rank, int from) {
    if (losses_.erase(rank) == 0) return false;
    if (printed_ == rank) printed_.reset();
    const std::string payload = watch::to_payload({.rank = rank, .text = {}});
    if (rank > rank_ && from >= rank_) tree_->tell_above(watch::MessageKind::found, payload);
    tree_->tell_below(watch::MessageKind::found, payload);
    return true;
  }

  /// Not for rank 0.
  [[nodiscard]] bool parent_has_left(double now) const {
    return tree_->report(parents_[static_cast<std::size_t>(rank_)], now).state == State::left;
  }

  /// The reason why the job must end; nullopt: it continues.
  [[nodiscard]] std::optional<watch::Ending> reason_to_end() {
    const double now = clock_.now();
    double limit = options_.limit.count();
    // If the ranks above have left in order, only this rank can judge those below it.
    if (rank_ != 0 && !parent_has_left(now)) {
      // Rank 0 decides unless it is stopped or gone itself.
      const double own_idle = tree_->report(rank_, now).idle;
      const RankReport first = tree_->report(0, now);
      if (first.state == State::lost) return loss_of_rank_0(own_idle);
      limit *= turn_.patience();
      if (!first.present() || std::min(first.silent, own_idle) < limit) return std::nullopt;
    }
    auto reports = tree_->reports(now);
    if (rank_ != 0) watch::ignore_unheard(reports);
    const auto lost = std::ranges::find(reports, State::lost, &RankReport::state);
    if (lost != reports.end() &&
        (failures_.any() || watch::idle_seconds(reports) >= loss_limit())) {
      return loss_of(printed_.value_or(lost->rank));
    }
    const std::lock_guard lock(mutex_);
    if (auto failure = failures_.ending(reports, names_, clock_.now())) return failure;
    auto text = watch::judge(reports, names_, {.limit = limit, .parents = parents_});
    return text ? std::optional(watch::Ending{.text = *std::move(text)}) : std::nullopt;
  }

  [[nodiscard]] double loss_limit() const {
    return std::min(options_.limit, options_.loss_limit).count();
  }
  [[nodiscard]] watch::Ending loss_of(int rank) {
    const auto known = losses_.find(rank);
    return {.text = known != losses_.end() ? known->second : describe_loss(rank, false),
            .lost = rank};
  }
  /// nullopt: it is not the turn of this rank to decide.
  [[nodiscard]] std::optional<watch::Ending> loss_of_rank_0(double own_idle) {
    if (!failures_.any() && own_idle < loss_limit()) {
      decides_since_.reset();
      return std::nullopt;
    }
    if (!decides_since_) decides_since_ = clock_.now();
    if (clock_.now() - *decides_since_ < turn_.seconds_to_wait(rank_0_is_silent_)) {
      return std::nullopt;
    }
    return loss_of(0);
  }

  /// Reports why and ends the job, here or on the rank that found the fault.
  void end(const watch::Ending& ending, bool found_here) {
    ended_ = true;
    tree_->tell_below(watch::MessageKind::verdict, ending.text);
    const bool printed = ending.lost >= 0 && printed_ == ending.lost;
    if (found_here && !printed) {
      logger_.print(fmt::format("{} {}", ending.text, advice_after(ending.status)));
    }
    logger_.log(ending.text);
    tree_->drain(500ms);
    {
      const std::lock_guard lock(mutex_);
      decided_ = true;
      changed_.notify_all();
    }
    if (found_here) {
      logger_.wait(logging_timeout);
      options_.end_job(ending.status);
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
  watch::Turn turn_;
  std::optional<watch::Tree> tree_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::string> names_;  ///< by rank
  std::optional<watch::Failure> own_failure_;
  bool decided_ = false;  ///< the reason for the job's end is known
  bool stopped_ = false;  ///< the watchdog's thread has ended

  watch::AsyncLogger logger_;

  // Used only by the watchdog's thread.
  std::uint64_t last_moves_ = 0;
  double last_move_ = 0;
  std::map<int, std::string> losses_;  ///< forwarded, by rank: how it was lost
  std::optional<int> printed_;         ///< the loss that this rank has printed
  bool rank_0_is_silent_ = false;
  std::optional<double> decides_since_;  ///< since when the loss of rank 0 ends the job
  watch::Failures failures_;             ///< of this rank and those below
  double next_report_ = 0;               ///< of this rank's failure
  bool ended_ = false;
  bool disabled_ = false;
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

bool Watchdog::end_job(ExitStatus status, const std::string& why) {
  return impl_ && impl_->end_job(status, why);
}

void Watchdog::log_to(Log log) {
  if (impl_) impl_->log_to(std::move(log));
}

}  // namespace lockstep
