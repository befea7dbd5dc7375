#pragma once

#include "lockstep/core/error.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// Barriers with time limits. MPI's collectives hang if a rank is missing; this uses nonblocking
/// messages and polling instead. Construct it while all ranks are known to be alive.
/// MpiEnvironment must outlive it.
class Rendezvous final {
 public:
  /// Collective: all-gathers the host names.
  Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const std::string& host(int rank) const;
  /// "rank 3 (node7)"
  [[nodiscard]] std::string name(int rank) const;

  /// A rank's state on arrival. Failures are reported in preference to timed-out waits, since a
  /// waiting rank may have waited for the failed one.
  enum class Arrival : int { succeeded, waited, failed };
  struct Outcome {
    Arrival arrival = Arrival::succeeded;
    std::string text = {};  ///< the error unless succeeded; truncated to 507 characters
    /// The phase reached: among equal arrivals, the one with the lowest phase is reported.
    int phase = 0;
    ExitStatus status = ExitStatus::internal;  ///< of the error
  };
  struct Place {
    const char* name;                 ///< "the start of NCCL"
    std::chrono::milliseconds limit;  ///< from this rank's arrival
    const char* advice = "";          ///< end of the message when it is exceeded: "; raise it"
  };
  static constexpr std::size_t largest_payload = 512;
  static constexpr std::size_t most_leaders = 4;

  /// Returns or throws on every rank that arrives, within about twice the limit. If all ranks
  /// arrive and succeed, `payload` receives rank 0's payload. With `leaders`, `payload` is split
  /// into as many equal blocks, and block k comes from rank leaders[k]. Otherwise throws the same
  /// Error on all ranks: it names the ranks, with hosts, that did not arrive within the
  /// limit after rank 0; if all arrived, it is the reported rank's text (the lowest such rank's).
  /// If rank 0 does not arrive, the error names rank 0. After an Error, do not call meet() again.
  void meet(const Place& place, const Outcome& mine, std::span<std::byte> payload = {},
            std::span<const int> leaders = {});

 private:
  class Meetings;
  std::unique_ptr<Meetings> meetings_;
};

}  // namespace lockstep
