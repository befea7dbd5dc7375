#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

std::atomic<bool> locks_work = true;
std::atomic<bool> times_can_be_set = true;
std::function<void()> before_the_lock_is_written;  // empty: no action
std::function<void()> after_the_lock_is_written;

/// During its lifetime, fcntl() fails as on file systems without locks.
class NoLocks final {
 public:
  NoLocks() { locks_work = false; }
  NoLocks(const NoLocks&) = delete;
  NoLocks& operator=(const NoLocks&) = delete;
  ~NoLocks() {
    locks_work = true;
    before_the_lock_is_written = after_the_lock_is_written = {};
  }
};

}  // namespace

#pragma GCC diagnostic ignored "-Wshadow"  // a struct has the function's name
extern "C" {

int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (locks_work || command != F_OFD_SETLK) {
    return static_cast<int>(::syscall(SYS_fcntl, file, command, argument));
  }
  errno = ENOSYS;
  return -1;
}

int futimens(int file, const timespec times[2]) noexcept {
  if (times_can_be_set) {
    return static_cast<int>(::syscall(SYS_utimensat, file, nullptr, times, 0));
  }
  errno = EPERM;
  return -1;
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  if (before_the_lock_is_written) before_the_lock_is_written();
  const ssize_t written = ::syscall(SYS_pwrite64, file, bytes, size, offset);
  if (after_the_lock_is_written) after_the_lock_is_written();
  return written;
}

}  // extern "C"

namespace {

DirectoryLockOptions options_for(const std::string& path, const std::string& job = "Slurm job 2") {
  return {.path = path, .job = job, .heartbeat = 50ms, .stale = 1000ms};
}

/// The error's text if the directory is refused, else empty. Checks that the status is
/// cannot_write.
std::string refusal(const DirectoryLockOptions& options) {
  try {
    const RunDirectory run(options);
    return {};
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == static_cast<int>(ExitStatus::cannot_write));
    return error.what();
  }
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

const std::string remote_holder =
    R"({"job":"Slurm job 1","host":"node77","boot":"b","process":4711,"started":"2026-01-01 00:00:00"})";

void set_age(const std::string& path, std::chrono::seconds age) {
  const timespec then{.tv_sec = std::time(nullptr) - age.count(), .tv_nsec = 0};
  const timespec times[2] = {then, then};
  BOOST_REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(it_creates_its_directories_and_writes_the_configuration) {
  const TemporaryDirectory directory;

  RunDirectory run(options_for(directory / "runs/resnet50"));
  run.write_config("model = resnet50\n");

  BOOST_TEST(std::filesystem::is_directory(directory / "runs/resnet50/log"));
  BOOST_TEST(std::filesystem::is_directory(run.checkpoints().text()));
  BOOST_TEST(read_file(directory / "runs/resnet50/config.ini") == "model = resnet50\n");
  BOOST_TEST(run.taken_over().empty());
}

BOOST_AUTO_TEST_CASE(a_second_job_is_refused_with_the_holders_name_and_host) {
  const TemporaryDirectory directory;
  const RunDirectory run(options_for(directory.path(), "Slurm job 17"));
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);

  const std::string text = refusal(options_for(directory.path()));

  BOOST_TEST(has(text, std::string("held by Slurm job 17 on ") + host), text);
  BOOST_TEST(has(text, directory.path()), text);
}

BOOST_AUTO_TEST_CASE(it_is_free_after_its_holder_has_ended) {
  const TemporaryDirectory directory;
  { const RunDirectory run(options_for(directory.path())); }

  const RunDirectory run(options_for(directory.path()));

  BOOST_TEST(run.taken_over().empty());
}

BOOST_AUTO_TEST_CASE(a_moved_run_is_still_held) {
  const TemporaryDirectory directory;
  RunDirectory first(options_for(directory.path()));

  const RunDirectory second = std::move(first);

  BOOST_TEST(!refusal(options_for(directory.path())).empty());
}

BOOST_AUTO_TEST_CASE(a_killed_holder_on_this_host_is_taken_over_at_once) {
  const TemporaryDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    const RunDirectory run(options_for(directory.path(), "Slurm job 1"));
    write_file(directory / "held", "");
    ::pause();
    ::_exit(0);
  }
  while (!std::filesystem::exists(directory / "held")) ::usleep(1000);
  BOOST_TEST(has(refusal(options_for(directory.path())), "Slurm job 1"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  const auto begin = std::chrono::steady_clock::now();
  const RunDirectory run(options_for(directory.path()));

  BOOST_TEST(has(run.taken_over(), "Slurm job 1"));
  BOOST_TEST((std::chrono::steady_clock::now() - begin < 900ms));
}

BOOST_AUTO_TEST_CASE(a_holder_on_another_host_with_a_heartbeat_is_alive) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", remote_holder);
  std::atomic<bool> stop = false;
  std::thread heartbeat_thread([&] {
    while (!stop) {
      ::utimensat(AT_FDCWD, (directory / "lock").c_str(), nullptr, 0);
      std::this_thread::sleep_for(50ms);
    }
  });

  const std::string text = refusal(options_for(directory.path()));
  stop = true;
  heartbeat_thread.join();

  BOOST_TEST(has(text, "held by Slurm job 1 on node77 (process 4711"), text);
  BOOST_TEST(read_file(directory / "lock") == remote_holder);
}

BOOST_AUTO_TEST_CASE(a_holder_on_another_host_that_just_died_is_taken_over_once_stale) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", remote_holder);

  const auto begin = std::chrono::steady_clock::now();
  const RunDirectory run(options_for(directory.path()));

  BOOST_TEST((std::chrono::steady_clock::now() - begin >= 900ms));
  BOOST_TEST(run.taken_over() == "Slurm job 1 on node77");
}

BOOST_AUTO_TEST_CASE(a_holder_on_another_host_that_died_long_ago_is_taken_over_at_once) {
  const TemporaryDirectory directory;
  for (const std::string& content : {remote_holder, remote_holder.substr(0, 20)}) {
    write_file(directory / "lock", content);
    set_age(directory / "lock", 3600s);

    const auto begin = std::chrono::steady_clock::now();
    const RunDirectory run(options_for(directory.path()));

    BOOST_TEST((std::chrono::steady_clock::now() - begin < 900ms));
    BOOST_TEST(!run.taken_over().empty());
  }
}

BOOST_AUTO_TEST_CASE(a_time_in_the_future_is_no_sign_of_life) {
  const TemporaryDirectory directory;
  for (const std::chrono::seconds ahead : {3s, 3600s, 2'000'000'000s}) {
    write_file(directory / "lock", remote_holder);
    set_age(directory / "lock", -ahead);
    const RunDirectory run(options_for(directory.path()));
    BOOST_TEST(run.taken_over() == "Slurm job 1 on node77");
  }
  // If locks reach this host, the holder may still be there.
  write_file(directory / "lock", remote_holder);
  const Descriptor other(::open((directory / "lock").c_str(), O_RDWR | O_CLOEXEC));
  BOOST_REQUIRE(try_lock(other) == LockAttempt::got_it);
  set_age(directory / "lock", -3600s);
  BOOST_CHECK_EXCEPTION(RunDirectory(options_for(directory.path())), Error, [](const Error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return error.status() == ExitStatus::internal && has(error.what(), "s in the future");
  });
}

BOOST_AUTO_TEST_CASE(the_holder_keeps_its_lock_fresh) {
  const TemporaryDirectory directory;
  const RunDirectory run(options_for(directory.path()));
  set_age(directory / "lock", 3600s);

  std::this_thread::sleep_for(500ms);

  struct stat status {};
  BOOST_REQUIRE(::stat((directory / "lock").c_str(), &status) == 0);
  BOOST_TEST(status.st_mtim.tv_sec > std::time(nullptr) - 60);
}

BOOST_AUTO_TEST_CASE(the_holder_keeps_its_lock_fresh_where_times_cannot_be_set) {
  const TemporaryDirectory directory;
  const RunDirectory run(options_for(directory.path()));
  const std::string holder = read_file(directory / "lock");
  set_age(directory / "lock", 3600s);
  times_can_be_set = false;

  std::this_thread::sleep_for(500ms);

  times_can_be_set = true;
  struct stat status {};
  BOOST_REQUIRE(::stat((directory / "lock").c_str(), &status) == 0);
  BOOST_TEST(status.st_mtim.tv_sec > std::time(nullptr) - 60);
  BOOST_TEST(read_file(directory / "lock") == holder);
}

BOOST_AUTO_TEST_CASE(special_files_in_a_run_directory_are_refused) {
  for (const char* name : {"lock", "log", "checkpoints"}) {
    const TemporaryDirectory directory;
    BOOST_REQUIRE(::mkfifo((directory / name).c_str(), 0600) == 0);

    const std::string why = refusal(options_for(directory.path()));

    BOOST_TEST(has(why, std::string(name) + " (it is a FIFO"), why);
    BOOST_TEST(std::filesystem::is_fifo(directory / name));
  }
}

/// Starts two jobs at once, and returns those that hold the directory.
std::vector<std::unique_ptr<RunDirectory>> start_two(const DirectoryLockOptions& options) {
  std::vector<std::unique_ptr<RunDirectory>> runs(2);
  const auto start = [&](std::size_t i) {
    try {
      runs[i] = std::make_unique<RunDirectory>(options);
    } catch (const Error&) {
    }
  };
  std::thread other(start, 1);
  start(0);
  other.join();
  std::erase(runs, nullptr);
  return runs;
}

BOOST_AUTO_TEST_CASE(without_locks_one_of_two_that_start_together_holds_it) {
  const TemporaryDirectory directory;
  const NoLocks none;
  // Both find it free before either writes, and both write before either continues.
  std::barrier both(2);
  before_the_lock_is_written = after_the_lock_is_written = [&] { both.arrive_and_wait(); };

  const auto runs = start_two(options_for(directory.path()));

  BOOST_TEST(runs.size() == 1U);
  if (runs.size() == 1) BOOST_CHECK_NO_THROW(runs[0]->require_held());
}

BOOST_AUTO_TEST_CASE(without_locks_a_late_writer_is_waited_for) {
  const TemporaryDirectory directory;
  const NoLocks none;
  std::barrier both(2);
  std::atomic<int> writers = 0;
  std::atomic<bool> one_has_written = false;
  before_the_lock_is_written = [&] {
    both.arrive_and_wait();
    if (writers++ == 0) return;
    while (!one_has_written) std::this_thread::yield();
    std::this_thread::sleep_for(100ms);
  };
  after_the_lock_is_written = [&] { one_has_written = true; };
  DirectoryLockOptions options = options_for(directory.path());
  options.heartbeat = 10s;  // long, because a heartbeat would also detect the other writer
  options.stale = 40s;
  options.settle = 3s;

  const auto runs = start_two(options);

  BOOST_TEST(runs.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_replaced_holder_detects_it_at_its_next_heartbeat) {
  const TemporaryDirectory directory;
  const RunDirectory run(options_for(directory.path()));
  BOOST_TEST(run.is_held());
  write_file(directory / "lock", remote_holder);

  for (int i = 0; i < 3000 && !run.is_lost(); ++i) std::this_thread::sleep_for(10ms);

  BOOST_TEST(run.is_lost());
  BOOST_TEST(!run.is_held());
  BOOST_CHECK_EXCEPTION(run.require_held(), Error, [](const Error& error) {
    return error.status() == ExitStatus::cannot_write &&
           has(error.what(), "is now held by Slurm job 1 on node77 (process 4711");
  });
}

BOOST_AUTO_TEST_CASE(a_replaced_holder_changes_no_file) {
  const TemporaryDirectory directory;
  {
    DirectoryLockOptions options = options_for(directory.path());
    options.heartbeat = 1h;
    options.stale = 4h;
    RunDirectory run(options);
    run.write_config("model = a\n");
    write_file(directory / "lock", remote_holder);

    BOOST_TEST(run.is_held(), "the lock was read again although its last check is recent");
    BOOST_CHECK_THROW(run.write_config("model = b\n"), Error);
    BOOST_TEST(!run.is_held());
  }
  BOOST_TEST(read_file(directory / "config.ini") == "model = a\n");
  BOOST_TEST(read_file(directory / "lock") == remote_holder);
}

/// A job in a separate process that holds the directory, is suspended, and then tries to save.
void hold_and_save_when_told(const TemporaryDirectory& directory) {
  std::string result;
  {
    const RunDirectory run(options_for(directory / "run", "Slurm job 1"));
    CheckpointDirectory checkpoints(run.checkpoints(), 5, [&] { run.require_held(); });
    write_file(directory / "held", "");
    while (!std::filesystem::exists(directory / "go")) ::usleep(1000);
    if (run.is_held()) result = "still believes that it is held, and ";
    CheckpointInfo info;
    info.state.emplace().step = 7;
    info.state->best_step = 7;
    try {
      checkpoints.save(info, [] { return std::optional<StoredTensor>(); });
      result += "saves";
    } catch (const Error& error) {
      result += error.what();
    }
  }
  write_file(directory / "result", result);
}

BOOST_AUTO_TEST_CASE(a_suspended_holder_that_was_taken_over_saves_nothing_when_it_continues) {
  const TemporaryDirectory directory;
  const NoLocks none;
  const pid_t child = ::fork();
  if (child == 0) {
    hold_and_save_when_told(directory);
    ::_exit(0);
  }
  while (!std::filesystem::exists(directory / "held")) ::usleep(1000);
  ::kill(child, SIGSTOP);

  const RunDirectory run(options_for(directory / "run"));
  const std::string own = read_file(directory / "run/lock");
  write_file(directory / "go", "");
  ::kill(child, SIGCONT);
  ::waitpid(child, nullptr, 0);

  BOOST_TEST(has(run.taken_over(), "Slurm job 1"));
  const std::string result = read_file(directory / "result");
  BOOST_TEST(has(result, "is now held by Slurm job 2"), result);
  BOOST_TEST(!has(result, "still believes"), result);
  BOOST_TEST(std::filesystem::is_empty(run.checkpoints().text()));
  BOOST_TEST(read_file(directory / "run/lock") == own);
  BOOST_CHECK_NO_THROW(run.require_held());
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_created_is_cannot_write) {
  const TemporaryDirectory directory;
  write_file(directory / "file", "");

  BOOST_TEST(has(refusal(options_for(directory / "file/run")), "file/run"));
}

BOOST_AUTO_TEST_CASE(who_may_only_read_the_lock_keeps_nobody_out) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", "");
  const Descriptor reader(::open((directory / "lock").c_str(), O_RDONLY | O_CLOEXEC));
  BOOST_REQUIRE(::flock(reader.get(), LOCK_EX | LOCK_NB) == 0);

  DirectoryLockOptions options = options_for(directory.path());
  options.settle = 100ms;
  const RunDirectory run(options);

  BOOST_TEST(run.is_held());
  const std::string why = refusal(options_for(directory.path()));
  BOOST_TEST(has(why, "is held by"), why);
}

BOOST_AUTO_TEST_CASE(a_lock_without_a_holder_may_be_free_later) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", "");
  const Descriptor other(::open((directory / "lock").c_str(), O_RDWR | O_CLOEXEC));
  BOOST_REQUIRE(try_lock(other) == LockAttempt::got_it);

  BOOST_CHECK_EXCEPTION(RunDirectory(options_for(directory.path())), Error, [](const Error& error) {
    return error.status() == ExitStatus::internal &&
           has(error.what(), "is held by another process");
  });
}

BOOST_AUTO_TEST_CASE(no_link_in_a_run_directory_is_followed) {
  for (const char* name : {"lock", "log", "checkpoints"}) {
    const TemporaryDirectory directory;
    std::filesystem::create_directory(directory / "victim");
    write_file(directory / "victim/kept", "text");
    std::filesystem::create_directory(directory / "run");
    const bool is_file = std::string(name) == "lock";
    std::filesystem::create_symlink(directory / (is_file ? "victim/kept" : "victim"),
                                    directory / ("run/" + std::string(name)));

    const std::string why = refusal(options_for(directory / "run"));

    BOOST_TEST(has(why, std::string(name) + " (it is a link"), why);
    BOOST_TEST(read_file(directory / "victim/kept") == "text");
  }
}

BOOST_AUTO_TEST_CASE(a_lock_with_a_second_hard_link_is_refused) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "run");
  write_file(directory / "victim", "text");
  std::filesystem::create_hard_link(directory / "victim", directory / "run/lock");

  const std::string why = refusal(options_for(directory / "run"));

  BOOST_TEST(has(why, "it has 2 hard links"), why);
  BOOST_TEST(read_file(directory / "victim") == "text");
}

BOOST_AUTO_TEST_CASE(only_a_free_lock_of_the_same_job_is_emptied) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lock";
  const auto text_after = [&](const std::string& holder) {
    const std::string text = R"({"job":")" + holder + R"(","host":"node2"})";
    write_file(path, text);
    const bool freed = free_lock_of(OpenDirectory(directory.path()) / "lock", "Slurm job 7");
    BOOST_TEST(freed == read_file(path).empty());
    BOOST_TEST((freed || read_file(path) == text));
    return read_file(path);
  };

  BOOST_TEST(text_after("Slurm job 7").empty());
  BOOST_TEST(!text_after("Slurm job 77").empty());
  const int held = ::open(path.c_str(), O_RDWR);
  BOOST_REQUIRE(::flock(held, LOCK_EX) == 0);
  BOOST_TEST(!text_after("Slurm job 7").empty());
  ::close(held);
  BOOST_TEST(text_after("Slurm job 7").empty());
  BOOST_TEST(!free_lock_of(OpenDirectory(directory.path()) / "absent", "Slurm job 7"));
}

BOOST_AUTO_TEST_CASE(a_lock_that_leads_elsewhere_is_not_emptied) {
  const std::string text = R"({"job":"Slurm job 7","host":"node2"})";
  for (const auto& link : {+[](const std::string&to, const std::string&at) {
                             std::filesystem::create_symlink(to, at);
                           },
                           +[](const std::string&to, const std::string&at) {
                             std::filesystem::create_hard_link(to, at);
                           }}) {
    const TemporaryDirectory directory;
    write_file(directory / "victim", text);
    std::filesystem::create_directory(directory / "run");
    link(directory / "victim", directory / "run/lock");

    BOOST_TEST(!free_lock_of(OpenDirectory(directory / "run") / "lock", "Slurm job 7"));
    BOOST_TEST(read_file(directory / "victim") == text);
  }
}
