#include "lockstep/runtime/run_command.hpp"

#include "lockstep/core/descriptor.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_output = 64 << 10;
/// How often to look for a stop request and for the command's end.
constexpr int tick_ms = 50;

std::vector<char*> environment_without(const std::vector<std::string>& beginnings) {
  std::vector<char*> kept;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const bool drops = std::ranges::any_of(beginnings, [&](const std::string& beginning) {
      return std::string_view(*variable).starts_with(beginning);
    });
    if (!drops) kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

/// Starts the command as the leader of a process group, with no signal blocked or ignored, whatever
/// the calling thread and its process do. Returns an error number, as posix_spawnp.
int spawn(const std::vector<std::string>& words, const CommandOptions& options, int output,
          pid_t& child) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = environment_without(options.without);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&child, arguments.front(), &files, &attributes, arguments.data(),
                                   environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

enum class Reading { some, nothing_now, end };

Reading read_some(int file, std::string& output) {
  std::array<char, 4096> bytes{};
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  if (count < 0) {
    return errno == EINTR || errno == EAGAIN ? Reading::nothing_now : Reading::end;
  }
  output.append(bytes.data(), std::min(static_cast<std::size_t>(count),
                                       longest_output - std::min(longest_output, output.size())));
  return count > 0 ? Reading::some : Reading::end;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options,
                          const std::stop_token& stop) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return {.output = fmt::format("no pipe: {}", std::strerror(errno)), .status = std::nullopt};
  }
  const Descriptor from_child(ends[0]);
  Descriptor to_parent(ends[1]);
  pid_t child = 0;
  if (const int error = spawn(words, options, to_parent.get(), child); error != 0) {
    return {.output = fmt::format("{}: {}", words.front(), std::strerror(error)),
            .status = std::nullopt};
  }
  to_parent.reset();
  ::fcntl(from_child.get(), F_SETFL, O_NONBLOCK);
  CommandResult result{.output = {}, .status = std::nullopt};
  auto deadline = Clock::now() + options.limit;
  bool ended = false;  // of the output
  bool killed = false;
  for (;;) {
    pollfd waiting{.fd = ended ? -1 : from_child.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, tick_ms) == 1) {
      ended = read_some(from_child.get(), result.output) == Reading::end;
    }
    int end = 0;
    if (::waitpid(child, &end, WNOHANG) != 0) {
      if (killed) return result;
      while (!ended && read_some(from_child.get(), result.output) == Reading::some) {
      }
      if (WIFEXITED(end)) result.status = WEXITSTATUS(end);
      return result;
    }
    // A process that waits for a dead file system does not end.
    if (killed && Clock::now() > deadline) return result;
    if (killed || (!stop.stop_requested() && Clock::now() < deadline)) continue;
    killed = ended = true;
    deadline = Clock::now() + std::chrono::seconds(5);
    ::kill(-child, SIGKILL);
    result.output += fmt::format("{}: no answer within {:.0f} s", words.front(),
                                 std::chrono::duration<double>(options.limit).count());
  }
}

}  // namespace lockstep
