#include "lockstep/comm/rendezvous.hpp"

#include "lockstep/comm/mailbox.hpp"
#include "lockstep/core/name_list.hpp"
#include "processor_name.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

/// Messages: each rank sends an Announcement to rank 0, which answers with a Verdict.
struct Announcement {
  int arrival = 0;
  int phase = 0;
  int status = 0;
  int leader_count = 0;
  std::array<int, Rendezvous::most_leaders> leaders{};
  std::array<char, 508> text{};
  std::array<std::byte, Rendezvous::largest_payload> payload{};
};
struct Verdict {
  int ok = 0;
  int status = static_cast<int>(ExitStatus::internal);
  std::array<char, 1020> text{};
  std::array<std::byte, Rendezvous::largest_payload> payload{};
};

template <std::size_t size>
void copy_text(const std::string& text, std::array<char, size>& place) {
  place[text.copy(place.data(), size - 1)] = '\0';
}

}  // namespace

class Rendezvous::Meetings final {
 public:
  Meetings() : world_(make_communicator()), mailbox_(world_) {
    std::array<char, MPI_MAX_PROCESSOR_NAME> mine{};
    copy_text(processor_name(), mine);
    std::vector<char> all(mine.size() * static_cast<std::size_t>(size()));
    const int length = static_cast<int>(mine.size());
    check(MPI_Allgather(mine.data(), length, MPI_CHAR, all.data(), length, MPI_CHAR, world_),
          "MPI_Allgather");
    for (std::size_t at = 0; at < all.size(); at += mine.size()) hosts_.emplace_back(&all[at]);
  }
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;
  ~Meetings() {
    // A later communicator with the same context id would receive a message left over here.
    if (!abandoned_) MPI_Comm_free(&world_);
  }

  [[nodiscard]] int rank() const noexcept { return mailbox_.rank(); }
  [[nodiscard]] int size() const noexcept { return mailbox_.size(); }
  [[nodiscard]] const std::string& host(int rank) const {
    return hosts_.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, host(rank));
  }

  /// Rank 0: receives the announcements until all arrive or the limit ends, and answers each.
  [[nodiscard]] Verdict judge(const Place& place, const Announcement& mine,
                              std::size_t payload_size) {
    ++meeting_;
    std::vector<std::optional<Announcement>> announcements(static_cast<std::size_t>(size()));
    announcements[0] = mine;
    receive_announcements(announcements, Clock::now() + place.limit);
    Verdict verdict;
    const Fault found = fault(announcements, place);
    copy_text(found.text, verdict.text);
    verdict.status = found.status;
    verdict.ok = verdict.text[0] == '\0' ? 1 : 0;
    Verdict own;
    for (int peer = 0; peer < size(); ++peer) {
      const auto& announcement = announcements[static_cast<std::size_t>(peer)];
      if (!announcement) continue;
      if (verdict.ok != 0)
        verdict.payload = payload_for(*announcement, announcements, payload_size);
      if (peer == 0) {
        own = verdict;
      } else {
        mailbox_.send(peer, tag(), std::as_bytes(std::span(&verdict, 1)));
      }
    }
    // A verdict to a rank that gave up may stay unsent: then the communicator is not freed.
    abandoned_ = !mailbox_.settled(Clock::now() + place.limit);
    require_mpi();
    return own;
  }

  /// Another rank: sends its announcement to rank 0 and waits for the verdict.
  [[nodiscard]] Verdict attend(const Place& place, const Announcement& mine) {
    ++meeting_;
    const auto arrival = Clock::now();
    if (!mailbox_.deliver(0, tag(), std::as_bytes(std::span(&mine, 1)), arrival + place.limit)) {
      rank_0_is_lost(place, "did not come to");
    }
    // Rank 0 arrives within a limit after this rank, then waits a limit for the others.
    const auto received =
        mailbox_.receive(0, tag(), arrival + 2 * place.limit + std::chrono::seconds(1));
    if (!received) rank_0_is_lost(place, "was lost at");
    return content<Verdict>(*received);
  }

 private:
  using Clock = Mailbox::Clock;

  [[nodiscard]] static MPI_Comm make_communicator() {
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return comm;
  }

  template <typename T>
  [[nodiscard]] static T content(const Mailbox::Received& received) {
    T value;
    std::memcpy(&value, received.bytes.data(), std::min(sizeof value, received.bytes.size()));
    return value;
  }

  /// A separate tag per meeting, so late messages of an earlier one are ignored.
  [[nodiscard]] int tag() const noexcept { return meeting_ % 32767; }

  void receive_announcements(std::vector<std::optional<Announcement>>& announcements,
                             Mailbox::Deadline deadline) {
    for (int missing = size() - 1; missing > 0; --missing) {
      const auto received = mailbox_.receive(MPI_ANY_SOURCE, tag(), deadline);
      require_mpi();
      if (!received) return;
      announcements[static_cast<std::size_t>(received->from)] = content<Announcement>(*received);
    }
  }

  /// The payload for a rank: rank 0's, or one block of each of its leaders' payloads. All ranks
  /// must have arrived.
  [[nodiscard]] static decltype(Verdict::payload) payload_for(
      const Announcement& peer, const std::vector<std::optional<Announcement>>& announcements,
      std::size_t size) {
    if (peer.leader_count == 0) return announcements[0]->payload;
    decltype(Verdict::payload) payload{};
    const std::size_t block = size / static_cast<std::size_t>(peer.leader_count);
    for (std::size_t k = 0; k < static_cast<std::size_t>(peer.leader_count); ++k) {
      const auto& leader = announcements[static_cast<std::size_t>(peer.leaders[k])]->payload;
      std::copy_n(leader.begin() + k * block, block, payload.begin() + k * block);
    }
    return payload;
  }

  struct Fault {
    std::string text = {};  ///< empty if all ranks arrived and succeeded
    int status = static_cast<int>(ExitStatus::internal);
  };
  [[nodiscard]] Fault fault(const std::vector<std::optional<Announcement>>& announcements,
                            const Place& place) const {
    std::vector<std::string> missing;
    for (int peer = 0; peer < size(); ++peer) {
      if (!announcements[static_cast<std::size_t>(peer)]) missing.push_back(name(peer));
    }
    if (!missing.empty()) {
      return {fmt::format(
          "{} did not come to {} within {} s of {} (the process ended, hangs or is slow); look "
          "into its log and submit the job again{}",
          listed(missing), place.name, std::chrono::duration<double>(place.limit).count(), name(0),
          place.advice)};
    }
    for (const Arrival kind : {Arrival::failed, Arrival::waited}) {
      const Announcement* first = nullptr;
      for (const auto& announcement : announcements) {
        if (announcement->arrival != static_cast<int>(kind)) continue;
        if (first == nullptr || announcement->phase < first->phase) first = &*announcement;
      }
      if (first != nullptr) return {first->text.data(), first->status};
    }
    return {};
  }

  [[noreturn]] void rank_0_is_lost(const Place& place, const char* how) {
    require_mpi();
    abandoned_ = true;
    fail(ExitStatus::internal,
         "{} {} {} within {} s of {} (the process ended, hangs or gave up waiting); look into its "
         "log and submit the job again{}",
         name(0), how, place.name, std::chrono::duration<double>(place.limit).count(), name(rank()),
         place.advice);
  }

  void require_mpi() {
    if (!mailbox_.mpi_error()) return;
    abandoned_ = true;
    refuse(mailbox_.mpi_error()->call, mailbox_.mpi_error()->text);
  }

  static void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    refuse(call, text.data());
  }
  [[noreturn]] static void refuse(const char* call, const std::string& text) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fail(ExitStatus::internal, "{} failed on rank {} ({}): {}", call, rank, processor_name(), text);
  }

  MPI_Comm world_;
  Mailbox mailbox_;
  int meeting_ = 0;
  bool abandoned_ = false;
  std::vector<std::string> hosts_;
};

Rendezvous::Rendezvous() : meetings_(std::make_unique<Meetings>()) {}
Rendezvous::~Rendezvous() = default;
int Rendezvous::rank() const noexcept {
  return meetings_->rank();
}
int Rendezvous::size() const noexcept {
  return meetings_->size();
}
const std::string& Rendezvous::host(int rank) const {
  return meetings_->host(rank);
}
std::string Rendezvous::name(int rank) const {
  return meetings_->name(rank);
}

void Rendezvous::meet(const Place& place, const Outcome& mine, std::span<std::byte> payload,
                      std::span<const int> leaders) {
  assert(payload.size() <= largest_payload && leaders.size() <= most_leaders);
  Announcement announcement{.arrival = static_cast<int>(mine.arrival),
                            .phase = mine.phase,
                            .status = static_cast<int>(mine.status),
                            .leader_count = static_cast<int>(leaders.size())};
  std::copy(leaders.begin(), leaders.end(), announcement.leaders.begin());
  std::copy(payload.begin(), payload.end(), announcement.payload.begin());
  copy_text(mine.text, announcement.text);
  const Verdict verdict = rank() == 0 ? meetings_->judge(place, announcement, payload.size())
                                      : meetings_->attend(place, announcement);
  if (verdict.ok == 0) throw Error(static_cast<ExitStatus>(verdict.status), verdict.text.data());
  std::copy_n(verdict.payload.begin(), payload.size(), payload.begin());
}

}  // namespace lockstep
