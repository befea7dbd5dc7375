#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/first_text.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/core/host_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace lockstep {

std::string broadcast_text(Communicator& comm, std::string text, int root) {
  auto size = static_cast<std::uint64_t>(text.size());
  comm.broadcast(std::span<std::uint64_t>(&size, 1), root);
  text.resize(size);
  comm.broadcast(std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(text.data()), size), root);
  return text;
}

std::vector<std::string> all_gather_text(Communicator& comm, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto size = static_cast<std::uint64_t>(mine.size());
  std::vector<std::uint64_t> sizes(ranks);
  comm.all_gather(std::span<const std::uint64_t>(&size, 1), std::span<std::uint64_t>(sizes));
  // Pads to the longest text: there is no all-gather of varying counts, and texts are short.
  const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::uint8_t> padded(longest, 0);
  std::copy(mine.begin(), mine.end(), padded.begin());
  std::vector<std::uint8_t> all(longest * ranks);
  comm.all_gather(std::span<const std::uint8_t>(padded), std::span<std::uint8_t>(all));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    texts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[rank]));
  }
  return texts;
}

std::string first_text(Communicator& comm, const std::string& mine) {
  const int first =
      comm.all_reduce_value<std::int32_t>(mine.empty() ? comm.size() : comm.rank(), ReduceOp::min);
  return first == comm.size() ? std::string() : broadcast_text(comm, mine, first);
}

void collectively(Communicator& comm, const std::function<void()>& work) {
  std::optional<Error> error;
  try {
    work();
  } catch (...) {
    error = current_error();
  }
  const int failing =
      comm.all_reduce_value<std::int32_t>(error ? comm.rank() : comm.size(), ReduceOp::min);
  if (failing == comm.size()) return;
  std::int32_t status = error ? static_cast<std::int32_t>(error->status()) : 0;
  comm.broadcast(std::span<std::int32_t>(&status, 1), failing);
  // Rank 0 prints it, so the other ranks' errors need their places.
  const std::string where =
      failing == 0 ? "" : fmt::format("rank {} on {}: ", failing, host_name());
  const std::string text = broadcast_text(comm, error ? where + error->what() : "", failing);
  throw Error(static_cast<ExitStatus>(status), text);
}

}  // namespace lockstep
