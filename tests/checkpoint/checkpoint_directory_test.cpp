#include <boost/test/unit_test.hpp>

#include "checkpoint/example_checkpoint.hpp"
#include "lockstep/checkpoint/checkpoint_directory.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <thread>

// HDF5 1.10 leaks memory when it refuses a damaged file. LeakSanitizer reads this if it is enabled.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5";
}

using namespace lockstep;
using namespace lockstep::test;
using Steps = std::vector<std::int64_t>;

namespace {

int link_error = 0;  // of each symlinkat(); 0: none

Checkpoint at(std::int64_t step, std::int64_t best_step = -1) {
  Checkpoint checkpoint = example_checkpoint(step);
  checkpoint.state->best_step = best_step;
  return checkpoint;
}

void damage(const std::string& path) {
  std::string bytes = read_file(path);
  write_file(path, bytes.substr(0, bytes.size() / 2));
}

void save(CheckpointDirectory& checkpoints, const Checkpoint& checkpoint) {
  checkpoints.save(checkpoint, tensors_of(checkpoint));
}

std::string link_target(const std::string& link) {
  return std::filesystem::read_symlink(link).string();
}

}  // namespace

extern "C" int symlinkat(const char* target, int directory, const char* path) noexcept {
  if (link_error == 0) {
    return static_cast<int>(::syscall(SYS_symlinkat, target, directory, path));
  }
  errno = link_error;
  return -1;
}

BOOST_AUTO_TEST_CASE(an_empty_directory_has_no_newest_checkpoint) {
  const TemporaryDirectory directory;
  const CheckpointDirectory checkpoints(directory / "run/checkpoints", 3);

  BOOST_TEST(!checkpoints.newest().has_value());
  BOOST_TEST(checkpoints.steps().empty());
  BOOST_TEST(checkpoints.path_of(12345) == (directory / "run/checkpoints/step-00012345.h5"));
}

BOOST_AUTO_TEST_CASE(the_newest_and_the_best_are_kept) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 2);

  save(checkpoints, at(100));
  save(checkpoints, at(200, 200));
  for (const std::int64_t step : {300, 400, 500}) save(checkpoints, at(step, 200));

  BOOST_TEST(checkpoints.steps() == (Steps{500, 400, 200}), boost::test_tools::per_element());
  BOOST_TEST(link_target(directory / "latest") == "step-00000500.h5");
  BOOST_TEST(link_target(directory / "best") == "step-00000200.h5");

  save(checkpoints, at(600, 600));

  BOOST_TEST(checkpoints.steps() == (Steps{600, 500}), boost::test_tools::per_element());
  BOOST_TEST(link_target(directory / "best") == "step-00000600.h5");
}

BOOST_AUTO_TEST_CASE(an_existing_file_can_become_the_best) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 1);

  save(checkpoints, at(100));
  // A resumed run has evaluated the file that it started from.
  save(checkpoints, at(110, 100));
  save(checkpoints, at(120, 100));

  BOOST_TEST(checkpoints.steps() == (Steps{120, 100}), boost::test_tools::per_element());
  BOOST_TEST(link_target(directory / "best") == "step-00000100.h5");

  // No file has the best step's weights.
  save(checkpoints, at(130, 125));
  BOOST_TEST(link_target(directory / "best") == "step-00000100.h5");
}

BOOST_AUTO_TEST_CASE(without_symbolic_links_the_same_files_are_kept_and_named) {
  for (const int error : {EPERM, ENOSYS, EOPNOTSUPP, EINVAL, EACCES}) {
    const TemporaryDirectory directory;
    CheckpointDirectory checkpoints(directory.path(), 1);
    link_error = error;
    const Checkpoint first = at(100, 100);
    const std::string warning = checkpoints.save(first, tensors_of(first));
    save(checkpoints, at(200, 100));
    save(checkpoints, at(300, 100));
    link_error = 0;

    BOOST_TEST(checkpoints.steps() == (Steps{300, 100}), boost::test_tools::per_element());
    BOOST_TEST(warning.find("has no symbolic links") != std::string::npos, warning);
    BOOST_TEST(read_file(directory / "latest") == "step-00000300.h5\n");
    BOOST_TEST(read_file(directory / "best") == "step-00000100.h5\n");
    BOOST_TEST((read_checkpoint(directory / "best", CheckpointUse::resume) == first));

    // Moved to a file system with links, and back.
    save(checkpoints, at(400, 400));
    BOOST_TEST(link_target(directory / "latest") == "step-00000400.h5");
    BOOST_TEST(link_target(directory / "best") == "step-00000400.h5");
    link_error = error;
    save(checkpoints, at(500, 400));
    link_error = 0;
    BOOST_TEST(read_file(directory / "latest") == "step-00000500.h5\n");
    BOOST_TEST(link_target(directory / "best") == "step-00000400.h5");
    BOOST_TEST(checkpoints.steps() == (Steps{500, 400}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_counts_without_latest_and_best) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 1);
  for (const char* name : {"latest", "best"}) {
    std::filesystem::create_directories(directory / (std::string(name) + "/kept"));
  }

  const Checkpoint first = at(100, 100);
  const std::string warning = checkpoints.save(first, tensors_of(first));
  for (const std::int64_t step : {200, 300}) save(checkpoints, at(step, 100));

  BOOST_TEST(warning.find("latest is left out") != std::string::npos, warning);
  BOOST_TEST(checkpoints.steps() == (Steps{300, 100}), boost::test_tools::per_element());
  BOOST_TEST(std::filesystem::exists(directory / "latest/kept"));
}

BOOST_AUTO_TEST_CASE(what_is_no_file_is_no_checkpoint) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 1);
  save(checkpoints, at(100));
  BOOST_REQUIRE(::mkfifo(checkpoints.path_of(200).c_str(), 0600) == 0);
  std::filesystem::create_directory(checkpoints.path_of(300));

  BOOST_TEST(checkpoints.newest()->path == checkpoints.path_of(100));
  BOOST_CHECK_THROW(save(checkpoints, at(200)), Error);
  save(checkpoints, at(400));

  BOOST_TEST(checkpoints.steps() == (Steps{400}), boost::test_tools::per_element());
  BOOST_TEST(std::filesystem::is_fifo(checkpoints.path_of(200)));
}

BOOST_AUTO_TEST_CASE(each_change_of_the_directory_may_be_forbidden) {
  const TemporaryDirectory directory;
  int allowed = 1'000;
  CheckpointDirectory checkpoints(directory.path(), 1, [&] {
    if (allowed-- == 0) fail(ExitStatus::cannot_write, "forbidden");
  });
  const auto names = [&] {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      found[entry.path().filename()] = entry.is_symlink() ? link_target(entry.path()) : "";
    }
    return found;
  };
  save(checkpoints, at(1, 1));
  auto expected = names();
  BOOST_TEST(expected.size() == 3U);

  // The changes: the file, `latest`, `best`, and the removal of the first file.
  const std::string second = "step-00000002.h5";
  for (int changes = 0; changes < 4; ++changes) {
    allowed = changes;
    BOOST_CHECK_THROW(save(checkpoints, at(2, 2)), Error);
    if (changes == 1) expected[second] = "";
    if (changes == 2) expected["latest"] = second;
    if (changes == 3) expected["best"] = second;
    BOOST_TEST((names() == expected), changes << " changes were allowed");
  }
}

BOOST_AUTO_TEST_CASE(newest_skips_files_that_do_not_verify) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 5);
  for (const std::int64_t step : {1, 2, 3}) save(checkpoints, at(step));
  damage(checkpoints.path_of(3));
  write_file(checkpoints.path_of(2), "");

  const auto found = checkpoints.newest();

  BOOST_REQUIRE(found.has_value());
  BOOST_TEST((read_checkpoint(found->path, CheckpointUse::resume) == at(1)));
  BOOST_TEST(found->path == checkpoints.path_of(1));
  BOOST_REQUIRE(found->rejected.size() == 2u);
  BOOST_TEST(found->rejected[0].find("step-00000003.h5") != std::string::npos);
  BOOST_TEST(found->rejected[1].find("step-00000002.h5") != std::string::npos);
  BOOST_TEST(checkpoints.steps().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_damaged_newer_file_does_not_evict_a_good_one) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 1);
  save(checkpoints, at(400));
  write_file(checkpoints.path_of(500), "damaged");

  save(checkpoints, at(450));

  BOOST_TEST(checkpoints.steps() == (Steps{500, 450}), boost::test_tools::per_element());
  BOOST_TEST((read_checkpoint(checkpoints.newest()->path, CheckpointUse::resume) == at(450)));
}

BOOST_AUTO_TEST_CASE(if_no_file_verifies_the_error_is_bad_input_and_names_all_files) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 5);
  for (const std::int64_t step : {1, 2}) {
    save(checkpoints, at(step));
    damage(checkpoints.path_of(step));
  }

  BOOST_CHECK_EXCEPTION(static_cast<void>(checkpoints.newest()), Error,
                        with(ExitStatus::bad_input, {"step-00000001.h5", "step-00000002.h5"}));
}

BOOST_AUTO_TEST_CASE(only_published_names_count) {
  const TemporaryDirectory directory;
  write_file(directory / ".lockstep-tmp-0123456789abcdef0123456789abcdef", "half a file");
  write_file(directory / "step-9.h5", "");
  write_file(directory / "step-0000000x.h5", "");
  write_file(directory / "notes.txt", "");

  const CheckpointDirectory checkpoints(directory.path(), 5);

  BOOST_TEST(checkpoints.steps().empty());
  BOOST_TEST(
      !std::filesystem::exists(directory / ".lockstep-tmp-0123456789abcdef0123456789abcdef"));
  BOOST_TEST(std::filesystem::exists(directory / "notes.txt"));
}

BOOST_AUTO_TEST_CASE(a_link_in_place_of_the_directory_is_not_followed) {
  const TemporaryDirectory directory;
  {
    CheckpointDirectory others(directory / "victim", 5);
    for (const std::int64_t step : {1, 2, 3}) save(others, example_checkpoint(step));
  }
  std::filesystem::create_directory(directory / "run");
  std::filesystem::create_directory_symlink(directory / "victim", directory / "run/checkpoints");

  BOOST_CHECK_EXCEPTION(CheckpointDirectory(OpenDirectory(directory / "run") / "checkpoints", 1),
                        Error, with(ExitStatus::cannot_write, {"checkpoints (it is a link"}));

  BOOST_TEST(CheckpointDirectory(directory / "victim", 5).steps().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_created_is_cannot_write) {
  const TemporaryDirectory directory;
  write_file(directory / "file", "");

  BOOST_CHECK_EXCEPTION(CheckpointDirectory(directory / "file/checkpoints", 1), Error,
                        with(ExitStatus::cannot_write, {"file/checkpoints"}));
}

BOOST_AUTO_TEST_CASE(a_background_save_is_published_while_the_caller_continues) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory.path(), 2);
  BackgroundSaver saver(checkpoints);
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> in_background{true};  // Boost.Test is for one thread
  ::setenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND", "20000", 1);

  const auto begin = std::chrono::steady_clock::now();
  saver.start(at(7), [caller, &in_background, next = tensors_of(at(7))] {
    if (std::this_thread::get_id() == caller) in_background = false;
    return next();
  });
  const std::chrono::duration<double> held = std::chrono::steady_clock::now() - begin;
  BOOST_TEST(saver.busy());
  BOOST_TEST(!saver.poll().has_value());
  saver.wait();
  BOOST_TEST(in_background);
  ::unsetenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND");

  BOOST_TEST(!saver.busy());
  const auto outcome = saver.poll();
  BOOST_REQUIRE(outcome.has_value());
  BOOST_TEST(outcome->step == 7);
  BOOST_TEST(outcome->path == checkpoints.path_of(7));
  BOOST_TEST(!outcome->error.has_value());
  BOOST_TEST(outcome->seconds > held.count());
  BOOST_TEST(!saver.poll().has_value());
  BOOST_TEST((read_checkpoint(checkpoints.newest()->path, CheckpointUse::resume) == at(7)));
}

BOOST_AUTO_TEST_CASE(a_failed_background_save_is_reported_and_the_next_one_works) {
  const TemporaryDirectory directory;
  CheckpointDirectory checkpoints(directory / "checkpoints", 2);
  BackgroundSaver saver(checkpoints);
  std::filesystem::remove_all(directory / "checkpoints");

  saver.start(at(1), tensors_of(at(1)));
  saver.wait();
  const auto unwritable = saver.poll();
  std::filesystem::create_directory(directory / "checkpoints");
  saver.start(at(1),
              []() -> std::optional<StoredTensor> { throw std::runtime_error("no memory"); });
  saver.wait();
  const auto thrown = saver.poll();
  BOOST_TEST(std::filesystem::is_empty(directory / "checkpoints"));
  saver.start(at(2), tensors_of(at(2)));
  saver.wait();
  const auto good = saver.poll();

  BOOST_TEST(unwritable.value().error.value().find("step-00000001.h5") != std::string::npos);
  BOOST_TEST(thrown.value().error.value() == "no memory");
  BOOST_TEST(!good.value().error.has_value());
}
