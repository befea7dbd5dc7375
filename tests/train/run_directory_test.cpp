#define BOOST_TEST_MODULE run_directory
#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/run_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

namespace {

RunDirectoryOptions options_for(const std::string& path, const std::string& job = "Slurm job 2") {
  return {.path = path, .job = job, .heartbeat = 50ms, .stale = 1000ms};
}

/// The refusal's text, and that its status is cannot_write; empty: it was not refused.
std::string refusal(const RunDirectoryOptions& options) {
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

const std::string far_holder =
    R"({"job":"Slurm job 1","host":"node77","boot":"b","process":4711,"started":"2026-01-01 00:00:00"})";

void set_age(const std::string& path, std::chrono::seconds age) {
  const timespec then{.tv_sec = std::time(nullptr) - age.count(), .tv_nsec = 0};
  const timespec times[2] = {then, then};
  BOOST_REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(it_makes_its_directories_and_writes_the_configuration) {
  const TemporaryDirectory directory;

  RunDirectory run(options_for(directory / "runs/resnet50"));
  run.write_config("model = resnet50\n");

  BOOST_TEST(std::filesystem::is_directory(directory / "runs/resnet50/log"));
  BOOST_TEST(std::filesystem::is_directory(run.checkpoints()));
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

BOOST_AUTO_TEST_CASE(it_is_free_again_when_its_holder_ends) {
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

BOOST_AUTO_TEST_CASE(a_holder_elsewhere_whose_heart_beats_is_alive) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", far_holder);
  std::atomic<bool> stop = false;
  std::thread heart([&] {
    while (!stop) {
      ::utimensat(AT_FDCWD, (directory / "lock").c_str(), nullptr, 0);
      std::this_thread::sleep_for(50ms);
    }
  });

  const std::string text = refusal(options_for(directory.path()));
  stop = true;
  heart.join();

  BOOST_TEST(has(text, "held by Slurm job 1 on node77 (process 4711"), text);
  BOOST_TEST(read_file(directory / "lock") == far_holder);
}

BOOST_AUTO_TEST_CASE(a_holder_elsewhere_that_has_just_died_is_taken_over_when_it_is_stale) {
  const TemporaryDirectory directory;
  write_file(directory / "lock", far_holder);

  const auto begin = std::chrono::steady_clock::now();
  const RunDirectory run(options_for(directory.path()));

  BOOST_TEST((std::chrono::steady_clock::now() - begin >= 900ms));
  BOOST_TEST(run.taken_over() == "Slurm job 1 on node77");
}

BOOST_AUTO_TEST_CASE(a_holder_elsewhere_that_died_long_ago_is_taken_over_at_once) {
  const TemporaryDirectory directory;
  for (const std::string& content : {far_holder, far_holder.substr(0, 20)}) {
    write_file(directory / "lock", content);
    set_age(directory / "lock", 3600s);

    const auto begin = std::chrono::steady_clock::now();
    const RunDirectory run(options_for(directory.path()));

    BOOST_TEST((std::chrono::steady_clock::now() - begin < 900ms));
    BOOST_TEST(!run.taken_over().empty());
  }
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

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_made_is_cannot_write) {
  const TemporaryDirectory directory;
  write_file(directory / "file", "");

  BOOST_TEST(has(refusal(options_for(directory / "file/run")), "file/run"));
}
