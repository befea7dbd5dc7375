#include "lockstep/core/line_follower.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 18;
constexpr std::size_t end_bytes = 128;

/// The part of `buffer` that the file has from `offset` on.
std::string_view read_some(const Descriptor& file, const std::string& path, std::uint64_t offset,
                           std::vector<char>& buffer) {
  return {buffer.data(), read_input(file, path, offset, std::as_writable_bytes(std::span(buffer)))};
}

}  // namespace

bool LineFollower::read(FunctionRef<void(std::string_view line)> use) {
  // Opening it again finds a file that was renamed to the path, and makes network file systems ask
  // the server.
  const Descriptor file = open_input(path_, "check its permissions");
  std::vector<char> buffer(end_.size());
  if (read_some(file, path_.text(), offset_ - end_.size(), buffer) != end_) {
    *this = LineFollower(std::move(path_));
    return false;
  }
  buffer.resize(block_bytes);
  for (;;) {
    const std::string_view block = read_some(file, path_.text(), offset_, buffer);
    offset_ += block.size();
    end_.append(block.substr(block.size() - std::min(block.size(), end_bytes)));
    end_.erase(0, end_.size() - std::min(end_.size(), end_bytes));
    split(block, use);
    if (block.size() < block_bytes) return true;
  }
}

void LineFollower::split(std::string_view block, FunctionRef<void(std::string_view line)> use) {
  for (;;) {
    const std::size_t newline = block.find('\n');
    if (newline == std::string_view::npos) break;
    const std::string_view line = block.substr(0, newline);
    block.remove_prefix(newline + 1);
    if (rest_.empty()) {
      use(line);
    } else {
      rest_ += line;
      use(rest_);
      rest_.clear();
    }
  }
  rest_ += block;
  require_line(path_.text(), rest_.size());
}

}  // namespace lockstep
