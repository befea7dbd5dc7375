#include "judge.hpp"

#include "lockstep/core/log_words.hpp"
#include "lockstep/core/name_list.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::watch {
namespace {

using State = RankReport::State;

constexpr std::size_t most_groups = 3;
/// Fraction of the limit after which a rank counts as silent. A stopped process is silent for as
/// long as the others wait, less the age of their reports.
constexpr double silence = 0.75;

bool has_not_left(const RankReport& report) noexcept {
  return report.state != State::left;
}

/// A key: equal for ranks that wait in the same collective.
auto place(const RankReport& report) noexcept {
  const PhaseBoard::Reading& at = report.reading;
  const bool bucket = is_started(at.waits_in);
  return std::tuple(at.step, at.collectives, at.bucket, at.waits_in, bucket ? 0 : at.wait_count);
}

/// The first collective that not all devices have completed.
struct DeviceFault {
  std::uint64_t collective = 0;
  /// Ranks whose devices have not reached it, ascending; empty: the collective itself hangs.
  std::vector<int> late = {};
  std::size_t waiting = 0;  ///< number of devices that have reached it and not completed it
};

/// Whether the host waits for the device, so that its counts are up to date. Messages are not
/// counted, so a wait for one says nothing about them.
bool is_known(const RankReport& report) noexcept {
  return report.present() && report.waits() && report.reading.device.awaited &&
         !is_message(report.reading.waits_in);
}

std::uint64_t completed_by(const RankReport* report) noexcept {
  return report->reading.device.completed;
}

/// What the counts of collectives say about ranks that all wait. Pure. Only ranks that wait for
/// their devices are considered; nullopt: there are none.
std::optional<DeviceFault> find_device_fault(std::span<const RankReport> reports) {
  std::vector<const RankReport*> known;
  for (const RankReport& report : reports) {
    if (is_known(report)) known.push_back(&report);
  }
  if (known.empty()) return std::nullopt;
  const auto least = std::ranges::min_element(known, {}, completed_by);
  DeviceFault fault{.collective = completed_by(*least) + 1};
  for (const RankReport* report : known) {
    if (report->reading.device.reached < fault.collective) {
      fault.late.push_back(report->rank);
    } else if (completed_by(report) < fault.collective) {
      ++fault.waiting;
    }
  }
  return fault;
}

class Diagnosis final {
 public:
  Diagnosis(std::span<const RankReport> reports, std::span<const std::string> names,
            const JudgeOptions& options)
      : reports_(reports), names_(names), options_(options), late_(reports.size(), false) {}

  /// Text: the late ranks, the evidence, and what the others do.
  [[nodiscard]] std::string text() {
    const std::string late_ranks = find_late();
    return fmt::format("no rank has made progress for {:.1f} s: {}{}", idle_seconds(reports_),
                       late_ranks, others());
  }

 private:
  template <typename Condition>
  bool mark(Condition&& condition) {
    bool any = false;
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      late_[i] = has_not_left(reports_[i]) && condition(reports_[i]);
      any = any || late_[i];
    }
    return any;
  }

  [[nodiscard]] bool is_silent(const RankReport& report) const noexcept {
    return (report.present() || report.state == State::lost) &&
           report.silent >= silence * options_.limit;
  }
  /// Whether its silence is its own: below a silent rank (except rank 0), no report gets through.
  [[nodiscard]] bool silence_is_its_own(const RankReport& report) const {
    for (int above = parent_of(report.rank); above > 0; above = parent_of(above)) {
      if (is_silent(reports_[static_cast<std::size_t>(above)])) return false;
    }
    return true;
  }

  [[nodiscard]] int parent_of(int rank) const {
    return options_.parents[static_cast<std::size_t>(rank)];
  }

  /// A sentence about the late ranks: NAME `verb` SECONDS s `where` PHASE `why`.
  struct Wording {
    std::string_view verb;
    std::string_view where;
    std::string_view why;
    double RankReport::*seconds;
  };
  static constexpr Wording silent{log_words::silent, "ago, in",
                                  " (its process is stopped or ended, or its node is out of reach)",
                                  &RankReport::silent};
  static constexpr Wording late{log_words::late, "in", "", &RankReport::idle};
  static constexpr Wording alone{log_words::alone, "in",
                                 " (the ranks do not make the same collectives; "
                                 "--debug-collectives names the first that differs)",
                                 &RankReport::idle};

  [[nodiscard]] std::string find_late() {
    if (mark([this](const auto& r) { return is_silent(r) && silence_is_its_own(r); })) {
      return late_text(silent);
    }
    if (mark([](const auto& r) { return r.present() && !r.waits(); })) {
      return late_text(late);
    }
    if (mark([](const auto& r) { return r.state == State::unheard; })) {
      return late_names() + " did not connect to the watchdog";
    }
    const auto fault = find_device_fault(reports_);
    if (fault && !fault->late.empty()) return late_devices(*fault);
    if (auto text = find_other_collective()) return *std::move(text);
    if (fault &&
        std::cmp_equal(fault->waiting, std::ranges::count_if(reports_, &RankReport::present))) {
      return fmt::format(
          "all GPUs have reached collective {}, which does not end (the network, NCCL or MPI "
          "hangs; with NCCL, set NCCL_DEBUG=INFO to see more)",
          fault->collective);
    }
    return "all ranks wait for each other (the network, MPI or NCCL hangs)";
  }

  /// All ranks wait, but some for their own devices.
  [[nodiscard]] std::string late_devices(const DeviceFault& fault) {
    mark([&](const RankReport& report) {
      return std::ranges::find(fault.late, report.rank) != fault.late.end();
    });
    const auto first = static_cast<std::size_t>(fault.late.front());
    std::string waiting;
    if (fault.waiting == 1) waiting = ", in which the GPU of 1 other rank waits";
    if (fault.waiting > 1) {
      waiting = fmt::format(", in which the GPUs of {} other ranks wait", fault.waiting);
    }
    return fmt::format(
        "the GPU of {} has not reached collective {}{} (its host waits for it in {}; the GPU hangs "
        "or is very slow: look for Xid errors in the node's kernel log){}",
        names_[first], fault.collective, waiting, describe(reports_[first].reading),
        late_count() > 1 ? "; all such ranks: " + late_names() : "");
  }

  /// If all ranks wait, those that wait elsewhere than most have called another collective.
  [[nodiscard]] std::optional<std::string> find_other_collective() {
    std::map<decltype(place(reports_[0])), std::size_t> places;
    // A message is awaited by one rank alone.
    const auto in_collective = [](const RankReport& report) {
      return has_not_left(report) && !is_message(report.reading.waits_in);
    };
    for (const RankReport& report : reports_) {
      if (in_collective(report)) ++places[place(report)];
    }
    if (places.size() < 2) return std::nullopt;
    const auto most = std::ranges::max_element(
        places, [](const auto& a, const auto& b) { return a.second < b.second; });
    mark([&](const auto& report) { return in_collective(report) && place(report) != most->first; });
    return late_text(alone);
  }

  [[nodiscard]] std::string late_text(const Wording& wording) const {
    const auto first = static_cast<std::size_t>(std::ranges::find(late_, true) - late_.begin());
    const RankReport& report = reports_[first];
    return fmt::format("{} {} {:.1f} s {} {}{}{}", names_[first], wording.verb,
                       report.*wording.seconds, wording.where, describe(report.reading),
                       wording.why, late_count() > 1 ? "; all such ranks: " + late_names() : "");
  }

  /// "; 3 ranks wait in the barrier, in checks of step 12"
  [[nodiscard]] std::string others() const {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      if (!late_[i] && reports_[i].present()) {
        groups[describe(reports_[i].reading)].push_back(i);
      }
    }
    std::vector<std::pair<std::string, std::vector<std::size_t>>> sorted(groups.begin(),
                                                                         groups.end());
    std::ranges::sort(
        sorted, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    if (sorted.size() > most_groups) sorted.resize(most_groups);
    std::string text;
    for (const auto& [where, ranks] : sorted) {
      const bool one = ranks.size() == 1;
      text += fmt::format(
          "; {} {} in {}", one ? names_[ranks[0]] : fmt::format("{} ranks", ranks.size()),
          reports_[ranks[0]].waits() ? (one ? "waits" : "wait") : (one ? "is" : "are"), where);
    }
    return text;
  }

  [[nodiscard]] std::string late_names() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < late_.size(); ++i) {
      if (late_[i]) names.push_back(names_[i]);
    }
    return listed(names);
  }
  [[nodiscard]] std::ptrdiff_t late_count() const { return std::ranges::count(late_, true); }

  std::span<const RankReport> reports_;
  std::span<const std::string> names_;
  JudgeOptions options_;
  std::vector<bool> late_;
};

/// The limit, extended while any rank is in a phase that may take longer. A silent rank does not
/// extend it: a watchdog reports in every phase.
double limit_now(std::span<const RankReport> reports, double limit) noexcept {
  for (const RankReport& report : reports) {
    if (!report.present() || report.silent >= silence * limit) continue;
    if (report.reading.unhurried && !report.waits()) return unhurried_factor * limit;
  }
  return limit;
}

}  // namespace

std::string describe(const PhaseBoard::Reading& reading) {
  std::string where(to_string(reading.phase));
  if (reading.step > 0 && reading.phase != Phase::start_up) {
    where += fmt::format(" of step {}", reading.step);
  }
  if (reading.saving >= 0 && reading.phase != Phase::save) {
    where += fmt::format(", saving step {}", reading.saving);
  }
  switch (reading.waits_in) {
    case CollectiveKind::none:
      if (reading.phase == Phase::backward) where += fmt::format(", bucket {}", reading.bucket);
      return where;
    case CollectiveKind::started_all_reduce:
      return fmt::format("the all-reduce of bucket {}, in {}", reading.bucket, where);
    case CollectiveKind::started_reduce_scatter:
      return fmt::format("the reduce-scatter of bucket {}, in {}", reading.bucket, where);
    case CollectiveKind::started_all_gather:
      return fmt::format("the all-gather of bucket {}, in {}", reading.bucket, where);
    case CollectiveKind::barrier:
    case CollectiveKind::synchronize:
    case CollectiveKind::split:
    case CollectiveKind::send:
    case CollectiveKind::receive:
      return fmt::format("the {}, in {}", to_string(reading.waits_in), where);
    default:
      return fmt::format("the {} of {} values (collective {}), in {}", to_string(reading.waits_in),
                         reading.wait_count, reading.collectives, where);
  }
}

std::string describe_loss(const RankReport& lost, const std::string& name, bool silent) {
  return fmt::format("{} {} ({}; last heard of in {}); look into its log and the node's", name,
                     log_words::gone, silent ? log_words::no_answer : "its process ended",
                     describe(lost.reading));
}

double idle_seconds(std::span<const RankReport> reports) noexcept {
  double least = std::numeric_limits<double>::infinity();
  for (const RankReport& report : reports) {
    if (report.present()) least = std::min(least, report.idle);
  }
  return least == std::numeric_limits<double>::infinity() ? 0 : least;
}

std::optional<std::string> judge(std::span<const RankReport> reports,
                                 std::span<const std::string> names, const JudgeOptions& options) {
  if (idle_seconds(reports) < limit_now(reports, options.limit)) return std::nullopt;
  return Diagnosis(reports, names, options).text();
}

}  // namespace lockstep::watch

namespace lockstep {

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

}  // namespace lockstep
