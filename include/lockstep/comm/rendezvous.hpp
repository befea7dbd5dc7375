#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// Places that every rank of the job is to reach, and that no rank waits at for ever: MPI's own
/// collectives hang where a rank is missing. Messages are sent and looked for, never waited on.
/// Make it while all ranks are surely there; MpiEnvironment outlives it.
class Rendezvous final {
 public:
  /// Collective: the ranks tell each other their hosts.
  Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const std::string& host(int rank) const;
  /// "rank 3 (node7)"
  [[nodiscard]] std::string name(int rank) const;

  /// How a rank arrives. Of those that did not succeed, one that failed is reported before those
  /// that waited in vain, for they may have waited for it.
  enum class Arrival : int { succeeded, waited, failed };
  struct Outcome {
    Arrival arrival = Arrival::succeeded;
    std::string text = {};  ///< the error, where it did not succeed; cut at 500 characters
    /// How far it came: of those that arrive alike, the one that came least far is reported.
    int stage = 0;
  };
  struct Place {
    const char* name;                 ///< "the start of NCCL"
    std::chrono::milliseconds limit;  ///< from this rank's own arrival
  };
  static constexpr std::size_t largest_payload = 512;
  static constexpr std::size_t most_leaders = 4;

  /// Ends on every rank that comes, within twice the limit: well, with rank 0's `payload`, where
  /// all came and all succeeded; with `leaders`, of as many equal blocks of it the k-th is that of
  /// rank leaders[k]. Otherwise with one Error(internal), on all alike: it names the
  /// ranks that did not come within the limit of rank 0's arrival, with their hosts; or it is the
  /// text of the one that is reported, of several the lowest rank's. Where rank 0 does not come, it
  /// is the one named. After an Error no further call is possible.
  void meet(const Place& place, const Outcome& mine, std::span<std::byte> payload = {},
            std::span<const int> leaders = {});

 private:
  class Mailbox;
  std::unique_ptr<Mailbox> mailbox_;
};

}  // namespace lockstep
