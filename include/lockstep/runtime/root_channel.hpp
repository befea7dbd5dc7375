#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// Messages between rank 0 and each other rank, on a separate MPI communicator. Both sides must
/// know the message sizes. Failures throw Error(internal).
class RootChannel final {
 public:
  /// Collective. Has one rank if MPI has not been initialized.
  RootChannel();
  ~RootChannel();
  RootChannel(const RootChannel&) = delete;
  RootChannel& operator=(const RootChannel&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// The size of `bytes` must be below 2^31.
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep
