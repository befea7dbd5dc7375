#include "lockstep/comm/rendezvous.hpp"

#include "backoff.hpp"
#include "lockstep/core/error.hpp"
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
  int stage = 0;
  int leader_count = 0;
  std::array<int, Rendezvous::most_leaders> leaders{};
  std::array<char, 508> text{};
  std::array<std::byte, Rendezvous::largest_payload> payload{};
};
struct Verdict {
  int well = 0;
  std::array<char, 1020> text{};
  std::array<std::byte, Rendezvous::largest_payload> payload{};
};

template <std::size_t size>
void put(const std::string& text, std::array<char, size>& place) {
  place[text.copy(place.data(), size - 1)] = '\0';
}

}  // namespace

class Rendezvous::Mailbox final {
 public:
  Mailbox() {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    std::array<char, MPI_MAX_PROCESSOR_NAME> mine{};
    put(processor_name(), mine);
    std::vector<char> all(mine.size() * static_cast<std::size_t>(size_));
    const int length = static_cast<int>(mine.size());
    check(MPI_Allgather(mine.data(), length, MPI_CHAR, all.data(), length, MPI_CHAR, comm_),
          "MPI_Allgather");
    for (std::size_t at = 0; at < all.size(); at += mine.size()) hosts_.emplace_back(&all[at]);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() {
    // A later communicator with the same context id would receive a message left over here.
    if (!abandoned_) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& host(int rank) const {
    return hosts_.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, host(rank));
  }

  [[nodiscard]] Verdict judge(const Place& place, const Announcement& mine,
                              std::size_t payload_size) {
    ++meeting_;
    std::vector<std::optional<Announcement>> came(static_cast<std::size_t>(size_));
    came[0] = mine;
    collect(came, place.limit);
    Verdict verdict;
    put(fault(came, place), verdict.text);
    verdict.well = verdict.text[0] == '\0' ? 1 : 0;
    auto verdicts = std::make_unique<std::vector<Verdict>>(came.size(), verdict);
    for (std::size_t peer = 0; verdict.well != 0 && peer < came.size(); ++peer) {
      (*verdicts)[peer].payload = payload_for(*came[peer], came, payload_size);
    }
    const Verdict own = verdicts->front();
    tell(came, std::move(verdicts), place.limit);
    return own;
  }

  [[nodiscard]] Verdict attend(const Place& place, const Announcement& mine) {
    ++meeting_;
    // A synchronous send completes once rank 0 has begun to receive it, so rank 0 has arrived.
    auto sent = std::make_unique<Announcement>(mine);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Issend(sent.get(), sizeof(Announcement), MPI_BYTE, 0, tag(), comm_, &request),
          "MPI_Issend");
    Backoff arrival(place.limit);
    for (int there = 0;;) {
      check(MPI_Test(&request, &there, MPI_STATUS_IGNORE), "MPI_Test");
      if (there != 0) break;
      if (!arrival.pause()) {
        // Leaked on purpose: MPI may still read the message.
        static_cast<void>(sent.release());
        MPI_Request_free(&request);
        rank_0_is_lost(place, "did not come to");
      }
    }
    Backoff answer(2 * place.limit + std::chrono::seconds(1));
    for (int spoke = 0;;) {
      check(MPI_Iprobe(0, tag(), comm_, &spoke, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (spoke != 0) break;
      if (!answer.pause()) rank_0_is_lost(place, "was lost at");
    }
    Verdict verdict;
    check(MPI_Recv(&verdict, sizeof verdict, MPI_BYTE, 0, tag(), comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
    return verdict;
  }

 private:
  /// A separate tag per meeting, so late messages of an earlier one are ignored.
  [[nodiscard]] int tag() const noexcept { return meeting_ % 32767; }

  void collect(std::vector<std::optional<Announcement>>& came, std::chrono::milliseconds limit) {
    int missing = size_ - 1;
    for (Backoff backoff(limit); missing > 0;) {
      int here = 0;
      MPI_Status status{};
      check(MPI_Iprobe(MPI_ANY_SOURCE, tag(), comm_, &here, &status), "MPI_Iprobe");
      if (here != 0) {
        auto& announcement = came[static_cast<std::size_t>(status.MPI_SOURCE)].emplace();
        check(MPI_Recv(&announcement, sizeof announcement, MPI_BYTE, status.MPI_SOURCE, tag(),
                       comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
        --missing;
      } else if (!backoff.pause()) {
        return;
      }
    }
  }

  /// Requires that all ranks have arrived.
  [[nodiscard]] static decltype(Verdict::payload) payload_for(
      const Announcement& peer, const std::vector<std::optional<Announcement>>& came,
      std::size_t size) {
    if (peer.leader_count == 0) return came[0]->payload;
    decltype(Verdict::payload) payload{};
    const std::size_t block = size / static_cast<std::size_t>(peer.leader_count);
    for (std::size_t k = 0; k < static_cast<std::size_t>(peer.leader_count); ++k) {
      const auto& leader = came[static_cast<std::size_t>(peer.leaders[k])]->payload;
      std::copy_n(leader.begin() + k * block, block, payload.begin() + k * block);
    }
    return payload;
  }

  void tell(const std::vector<std::optional<Announcement>>& came,
            std::unique_ptr<std::vector<Verdict>> sent, std::chrono::milliseconds limit) {
    std::vector<MPI_Request> requests;
    for (int peer = 1; peer < size_; ++peer) {
      const auto place = static_cast<std::size_t>(peer);
      if (!came[place]) continue;
      check(MPI_Isend(&(*sent)[place], sizeof(Verdict), MPI_BYTE, peer, tag(), comm_,
                      &requests.emplace_back()),
            "MPI_Isend");
    }
    Backoff backoff(limit);
    for (int done = 0; done == 0;) {
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (done == 0 && !backoff.pause()) {
        // A rank that left before the verdict fails when its limit is over.
        abandoned_ = true;
        static_cast<void>(sent.release());
        for (MPI_Request& request : requests) {
          if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
        }
        return;
      }
    }
  }

  /// The error text; empty if all ranks arrived and succeeded.
  [[nodiscard]] std::string fault(const std::vector<std::optional<Announcement>>& came,
                                  const Place& place) const {
    std::vector<std::string> missing;
    for (int peer = 0; peer < size_; ++peer) {
      if (!came[static_cast<std::size_t>(peer)]) missing.push_back(name(peer));
    }
    if (!missing.empty()) {
      return fmt::format(
          "{} did not come to {} within {} s of {} (the process ended, hangs or is slow); look "
          "into its log and submit the job again",
          listed(missing), place.name, std::chrono::duration<double>(place.limit).count(), name(0));
    }
    for (const Arrival kind : {Arrival::failed, Arrival::waited}) {
      const Announcement* first = nullptr;
      for (const auto& announcement : came) {
        if (announcement->arrival != static_cast<int>(kind)) continue;
        if (first == nullptr || announcement->stage < first->stage) first = &*announcement;
      }
      if (first != nullptr) return first->text.data();
    }
    return "";
  }

  [[noreturn]] void rank_0_is_lost(const Place& place, const char* how) {
    abandoned_ = true;
    fail(ExitStatus::internal,
         "{} {} {} within {} s of {} (the process ended, hangs or gave up waiting); look into its "
         "log and submit the job again",
         name(0), how, place.name, std::chrono::duration<double>(place.limit).count(), name(rank_));
  }

  void check(int code, const char* call) const {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    fail(ExitStatus::internal, "{} failed on rank {} ({}): {}", call, rank_, processor_name(),
         text.data());
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int meeting_ = 0;
  bool abandoned_ = false;
  std::vector<std::string> hosts_;
};

Rendezvous::Rendezvous() : mailbox_(std::make_unique<Mailbox>()) {}
Rendezvous::~Rendezvous() = default;
int Rendezvous::rank() const noexcept {
  return mailbox_->rank();
}
int Rendezvous::size() const noexcept {
  return mailbox_->size();
}
const std::string& Rendezvous::host(int rank) const {
  return mailbox_->host(rank);
}
std::string Rendezvous::name(int rank) const {
  return mailbox_->name(rank);
}

void Rendezvous::meet(const Place& place, const Outcome& mine, std::span<std::byte> payload,
                      std::span<const int> leaders) {
  assert(payload.size() <= largest_payload && leaders.size() <= most_leaders);
  Announcement announcement{.arrival = static_cast<int>(mine.arrival),
                            .stage = mine.stage,
                            .leader_count = static_cast<int>(leaders.size())};
  std::copy(leaders.begin(), leaders.end(), announcement.leaders.begin());
  std::copy(payload.begin(), payload.end(), announcement.payload.begin());
  put(mine.text, announcement.text);
  const Verdict verdict = rank() == 0 ? mailbox_->judge(place, announcement, payload.size())
                                      : mailbox_->attend(place, announcement);
  if (verdict.well == 0) throw Error(ExitStatus::internal, verdict.text.data());
  std::copy_n(verdict.payload.begin(), payload.size(), payload.begin());
}

}  // namespace lockstep
