#include "lockstep/run/directory_lock.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/random_name.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/runtime/signals.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

RunHolder this_process(const std::string& job) {
  return {.job = job,
          .host = host_name(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .process = ::getpid(),
          .started = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))),
          .token = random_name()};
}

/// nullopt: the file is empty.
std::optional<RunHolder> holder_in(const Descriptor& file) {
  std::array<char, 4096> bytes{};
  const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (size <= 0) return std::nullopt;
  return parse_run_holder({bytes.data(), static_cast<std::size_t>(size)});
}

nanoseconds modification_time(const struct stat& status) {
  return std::chrono::seconds(status.st_mtim.tv_sec) + nanoseconds(status.st_mtim.tv_nsec);
}

}  // namespace

std::string job_name() {
  const char* slurm = std::getenv("SLURM_JOB_ID");
  return slurm != nullptr ? fmt::format("Slurm job {}", slurm)
                          : fmt::format("process {}", ::getpid());
}

bool free_lock_of(const FilePath& lock, std::string_view job) {
  const Descriptor file = lock.open(O_RDWR);
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_nlink > 1 || try_lock(file) != LockAttempt::got_it) {
    return false;
  }
  const std::optional<RunHolder> holder = holder_in(file);
  return holder && holder->job == job && ::ftruncate(file.get(), 0) == 0;
}

DirectoryLock::DirectoryLock(const DirectoryLockOptions& options)
    : options_(options),
      lock_(OpenDirectory(options.path) / options.file),
      self_(this_process(options.job)) {
  const std::string suggestion = fmt::format("use another {}", options.option);
  file_ = open_output(lock_, O_RDWR, suggestion.c_str());
  if (!file_) {
    fail(ExitStatus::cannot_write, "cannot open {} ({}); check {} and its permissions",
         lock_.text(), std::strerror(errno), options.option);
  }
  LockAttempt attempt = try_lock(file_);
  const std::optional<RunHolder> holder = read_holder();
  const bool same_machine = holder && holder->host == self_.host && holder->boot == self_.boot;
  if (attempt == LockAttempt::held_by_another && !holder) refuse_unknown();
  if (attempt == LockAttempt::held_by_another && same_machine) refuse(*holder);
  if (attempt == LockAttempt::unsupported && same_machine && holder->process != self_.process &&
      ::kill(static_cast<pid_t>(holder->process), 0) != 0 && errno == ESRCH) {
    taken_over_ = name_of(*holder);
  } else if (holder && !(same_machine && attempt == LockAttempt::got_it)) {
    // The kernel knows the locks of its own machine for certain; other machines' holders are only
    // known by their heartbeat.
    attempt = wait_until_free(*holder);
  }
  if (holder) taken_over_ = name_of(*holder);
  write_holder();
  // Without file locks, several jobs may have found the directory free at the same time. The last
  // one to write holds it; the others see that after `settle`, when no write is outstanding.
  if (attempt == LockAttempt::unsupported) std::this_thread::sleep_for(options_.settle);
  if (const auto successor = find_successor()) refuse(*successor);
  heart_ = std::thread([this] { beat(); });
}

DirectoryLock::~DirectoryLock() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  heart_.join();
  if (find_successor()) return;
  // An empty file means free. Removing the file would race with a job that has just opened it.
  [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), 0);
}

LockAttempt DirectoryLock::wait_until_free(const RunHolder& holder) {
  const nanoseconds first = last_heartbeat();
  // The lock's time may lie in the future. Hence a holder is also dead if its heart has not beaten
  // while this job waited.
  const auto silent = std::chrono::steady_clock::now() + options_.stale;
  // A dead machine's lock may outlive its heartbeat until the server releases it.
  const auto deadline = silent + options_.stale;
  const auto pause =
      std::min<std::chrono::milliseconds>(options_.heartbeat / 5, std::chrono::seconds(1));
  while (last_heartbeat() == first) {
    const bool is_stale =
        file_system_now() - first > options_.stale || std::chrono::steady_clock::now() > silent;
    if (is_stale) {
      const LockAttempt attempt = try_lock(file_);
      if (attempt != LockAttempt::held_by_another) return attempt;
    }
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(pause);
  }
  if (const auto now = read_holder(); now) refuse(*now);
  // The holder has just ended.
  const LockAttempt attempt = try_lock(file_);
  if (attempt == LockAttempt::held_by_another) refuse(holder);
  return attempt;
}

void DirectoryLock::write_holder() {
  std::string text =
      Json{{"job", self_.job},         {"host", self_.host},       {"boot", self_.boot},
           {"process", self_.process}, {"started", self_.started}, {"token", self_.token}}
          .dump(-1, ' ', false, Json::error_handler_t::replace);
  // One write of a fixed size, so that with two writers one of the texts stays whole.
  constexpr std::size_t block = 1024;
  text.resize((text.size() + block) / block * block - 1, ' ');
  text += '\n';
  const bool written =
      ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::ftruncate(file_.get(), static_cast<off_t>(text.size())) == 0;
  if (!written || ::fsync(file_.get()) != 0) {
    fail(ExitStatus::cannot_write, "cannot write {} ({}); check that the disk is not full",
         lock_.text(), std::strerror(errno));
  }
}

void DirectoryLock::beat() {
  block_signals();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, options_.heartbeat, [this] { return stopping_; })) {
    // The new holder touches the file itself.
    if (find_successor()) return;
    // Some network file systems set no times on request, but at each write. The first byte is the
    // same for every holder.
    if (::futimens(file_.get(), nullptr) != 0) {
      [[maybe_unused]] const ssize_t ignored = ::pwrite(file_.get(), "{", 1, 0);
    }
  }
}

std::optional<RunHolder> DirectoryLock::find_successor() {
  const auto now = std::chrono::steady_clock::now();
  auto holder = read_holder();
  // An unreadable or empty file names no other holder.
  if (!holder || holder->token == self_.token) {
    checked_ = now;
    return std::nullopt;
  }
  lost_ = true;
  return holder;
}

void DirectoryLock::require_held() {
  const auto holder = find_successor();
  if (!holder) return;
  fail(
      ExitStatus::cannot_write,
      "{} {} is now held by {} (process {}, since {}; this job showed no sign of life "
      "for a while, or both started at once); this job writes nothing more to it; see that one job "
      "at a time uses it",
      options_.what, options_.path, name_of(*holder), holder->process, holder->started);
}

bool DirectoryLock::is_held() {
  if (lost_) return false;
  if (std::chrono::steady_clock::now() - checked_.load() < 2 * options_.heartbeat) return true;
  return !find_successor();
}

std::optional<RunHolder> DirectoryLock::read_holder() const {
  // By name: opening again makes network file systems ask the server.
  const Descriptor file = lock_.open(O_RDONLY);
  return file ? holder_in(file) : std::nullopt;
}

nanoseconds DirectoryLock::last_heartbeat() const {
  // By name: network file systems then ask the server.
  struct stat status {};
  return lock_.get_status(status) ? modification_time(status) : nanoseconds(0);
}

nanoseconds DirectoryLock::file_system_now() const {
  try {
    const TemporaryFile clock(lock_);
    struct stat status {};
    if (::write(clock.file().get(), "x", 1) == 1 && ::fstat(clock.file().get(), &status) == 0) {
      return modification_time(status);
    }
  } catch (const Error&) {  // nothing can be created there
  }
  return std::chrono::system_clock::now().time_since_epoch();
}

void DirectoryLock::refuse(const RunHolder& holder) const {
  const nanoseconds age = file_system_now() - last_heartbeat();
  // Hosts' clocks may differ by seconds.
  const bool is_future = age < -options_.heartbeat;
  // A holder that is suspended, or cut off from the file system, may end or come back.
  const bool is_alive = !is_future && age <= options_.stale;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  fail(is_alive ? ExitStatus::cannot_write : ExitStatus::internal,
       "{} {} is held by {} (process {}, since {}, {}); wait for it, stop it, or use another {}",
       options_.what, options_.path, name_of(holder), holder.process, holder.started,
       is_future ? fmt::format("the time of {} is {} s in the future", lock_.text(), -seconds)
                 : fmt::format("last sign of life {} s ago", std::max<std::int64_t>(0, seconds)),
       options_.option);
}

void DirectoryLock::refuse_unknown() const {
  fail(ExitStatus::internal,
       "{} {} is held by another process (which has written nothing to {}); try again, or use "
       "another {}",
       options_.what, options_.path, lock_.text(), options_.option);
}

}  // namespace lockstep
