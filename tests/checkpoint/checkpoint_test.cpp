#include <boost/test/unit_test.hpp>

#include "checkpoint/example_checkpoint.hpp"
#include "io/hdf5_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::size_t entries(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), {}));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_checkpoint_is_read_as_it_was_written) {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = example_checkpoint();

  write_checkpoint(directory / "a.h5", checkpoint);

  BOOST_TEST((read_checkpoint(directory / "a.h5", CheckpointUse::resume) == checkpoint));
  BOOST_TEST((read_checkpoint(directory / "a.h5", CheckpointUse::weights) == checkpoint));
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(empty_parts_are_read_as_they_were_written) {
  const TemporaryDirectory directory;
  Checkpoint checkpoint = example_checkpoint();
  checkpoint.optimizer.clear();  // an optimizer without state
  checkpoint.class_names.clear();
  checkpoint.mean.clear();
  checkpoint.image.reset();
  checkpoint.state->config.clear();
  checkpoint.model.push_back({.name = "scale", .shape = {}, .values = {0.5F}});

  write_checkpoint(directory / "a.h5", checkpoint);

  BOOST_TEST((read_checkpoint(directory / "a.h5", CheckpointUse::resume) == checkpoint));
}

// Programs that choose no algorithms, or do not store that of the all-reduce, write such files.
BOOST_AUTO_TEST_CASE(a_state_without_algorithms_is_read_as_it_was_written) {
  const TemporaryDirectory directory;
  const std::string path = directory / "step-00000001.h5";
  for (const std::optional<std::string>& text :
       {std::optional<std::string>(), std::optional<std::string>("")}) {
    Checkpoint checkpoint = example_checkpoint();
    checkpoint.state->convolutions = text;
    checkpoint.state->all_reduce = text;
    checkpoint.state->backend = text;

    write_checkpoint(path, checkpoint);

    BOOST_TEST((read_checkpoint(path, CheckpointUse::resume) == checkpoint));
    const h5::Object file = h5::open_file(path);
    const h5::Object state = h5::open_group(file, "/state");
    BOOST_TEST((h5::read_string(state, "convolutions") == text));
    BOOST_TEST((h5::read_string(state, "all_reduce") == text));
    BOOST_TEST((h5::read_string(state, "backend") == text));
  }
}

BOOST_AUTO_TEST_CASE(files_of_older_versions_resume) {
  const TemporaryDirectory directory;
  const std::string path = directory / "step-00000001.h5";
  for (const std::int64_t version : {1, 2, 3}) {
    Checkpoint checkpoint = example_checkpoint();
    checkpoint.state->backend.reset();
    if (version <= 2) checkpoint.state->all_reduce.reset();
    if (version == 1) checkpoint.state->convolutions.reset();
    write_checkpoint(path, checkpoint);
    BOOST_TEST((h5::read_number<std::int64_t>(h5::open_file(path), "version") == 4));
    {
      const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      H5Adelete(file.get(), "version");
      h5::write_number<std::int64_t>(file, "version", version);
    }

    BOOST_TEST((read_checkpoint(path, CheckpointUse::resume) == checkpoint));
  }
}

BOOST_AUTO_TEST_CASE(many_parameters_and_long_texts_are_read_as_they_were_written) {
  const TemporaryDirectory directory;
  Checkpoint checkpoint = example_checkpoint();
  for (int i = 500; i > 0; --i)
    checkpoint.model.push_back(tensor_of("layer" + std::to_string(i), {3}, 1));
  checkpoint.classes = 1000;
  checkpoint.class_names.assign(1000, std::string(200, 'n'));
  checkpoint.state->config = std::string(200'000, 'c');

  write_checkpoint(directory / "a.h5", checkpoint);

  BOOST_TEST((read_checkpoint(directory / "a.h5", CheckpointUse::resume) == checkpoint));
}

BOOST_AUTO_TEST_CASE(the_same_checkpoint_gives_the_same_bytes) {
  const TemporaryDirectory directory;

  write_checkpoint(directory / "a.h5", example_checkpoint());
  ::sleep(1);  // object times have a resolution of a second
  std::vector<std::byte> noise(1 << 20, std::byte{0xA5});  // different bytes in the heap
  write_checkpoint(directory / "b.h5", example_checkpoint());

  BOOST_TEST((read_file(directory / "a.h5") == read_file(directory / "b.h5")));
  BOOST_TEST(noise.size() != 0u);
}

BOOST_AUTO_TEST_CASE(a_slowed_write_gives_the_same_bytes) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());

  ::setenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND", "20000", 1);
  const auto begin = std::chrono::steady_clock::now();
  write_checkpoint(directory / "b.h5", example_checkpoint());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ::unsetenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND");

  BOOST_TEST((read_file(directory / "a.h5") == read_file(directory / "b.h5")));
  BOOST_TEST(seconds.count() > 0.2);  // 5,600 bytes of values
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_finite_is_never_written) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());
  const std::string before = read_file(directory / "a.h5");
  Checkpoint checkpoint = example_checkpoint();
  checkpoint.optimizer["momentum"][1].values[5] = std::numeric_limits<float>::infinity();

  BOOST_CHECK_EXCEPTION(
      write_checkpoint(directory / "a.h5", checkpoint), Error,
      with(ExitStatus::diverged, {"a.h5", "/optimizer/momentum/fc.weight", "element 5"}));

  BOOST_TEST((read_file(directory / "a.h5") == before));
  BOOST_TEST(entries(directory.path()) == 1u);
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_finite_is_refused_by_name) {
  const TemporaryDirectory directory;
  {
    h5::File file = h5::create_file(directory / "nan.h5");
    const h5::Group model = h5::create_group(file, "/model");
    h5::write_dataset<float>(model, "fc.weight", std::array<std::uint64_t, 1>{2},
                             std::array{1.0F, std::numeric_limits<float>::quiet_NaN()});
    h5::close_written(std::move(file));
  }

  BOOST_CHECK_EXCEPTION(
      static_cast<void>(read_checkpoint(directory / "nan.h5", CheckpointUse::weights)), Error,
      with(ExitStatus::bad_input, {"nan.h5:/model/fc.weight", "nan", "element 1"}));
}

BOOST_AUTO_TEST_CASE(a_file_of_weights_can_be_loaded_but_not_resumed) {
  const TemporaryDirectory directory;
  {
    h5::File file = h5::create_file(directory / "w.h5");
    const h5::Group model = h5::create_group(file, "/model");
    h5::write_dataset<double>(model, "fc.weight", std::array<std::uint64_t, 2>{1, 2},
                              std::array{1.0, 2.0});
    h5::write_dataset<std::int64_t>(model, "bn1.num_batches_tracked", {},
                                    std::array<std::int64_t, 1>{7});
    h5::close_written(std::move(file));
  }

  const Checkpoint checkpoint = read_checkpoint(directory / "w.h5", CheckpointUse::weights);

  BOOST_REQUIRE(checkpoint.model.size() == 1u);
  BOOST_TEST((checkpoint.model[0] == NamedTensor{"fc.weight", {1, 2}, {1, 2}}));
  BOOST_TEST(!checkpoint.state.has_value());
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(read_checkpoint(directory / "w.h5", CheckpointUse::resume)), Error,
      with(ExitStatus::bad_input, {"w.h5", "--init-from"}));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_no_checkpoint_is_refused_with_the_reason) {
  const TemporaryDirectory directory;
  h5::close_written(h5::create_file(directory / "empty.h5"));
  {
    h5::File file = h5::create_file(directory / "shard.h5");
    h5::write_string(file, "format", "lockstep-shard");
    h5::close_written(std::move(file));
  }
  {
    h5::File file = h5::create_file(directory / "future.h5");
    static_cast<void>(h5::create_group(file, "/model"));
    h5::write_number<std::int64_t>(file, "version", 5);
    h5::close_written(std::move(file));
  }
  const auto read = [&](const std::string& name) {
    static_cast<void>(read_checkpoint(directory / name, CheckpointUse::weights));
  };

  BOOST_CHECK_EXCEPTION(read("absent.h5"), Error, with(ExitStatus::no_input, {"absent.h5"}));
  BOOST_CHECK_EXCEPTION(read("empty.h5"), Error, with(ExitStatus::bad_input, {"/model"}));
  BOOST_CHECK_EXCEPTION(read("shard.h5"), Error, with(ExitStatus::bad_input, {"lockstep-shard"}));
  BOOST_CHECK_EXCEPTION(read("future.h5"), Error,
                        with(ExitStatus::bad_input, {"version 5", "1 to 4", "a newer program"}));
}

namespace {

/// A checkpoint of about 4 MB.
Checkpoint large_checkpoint() {
  Checkpoint checkpoint = example_checkpoint();
  for (int i = 0; i < 16; ++i)
    checkpoint.model.push_back(tensor_of("layer" + std::to_string(i), {64, 1024}, 0));
  return checkpoint;
}

/// Runs `body` in a child process, and returns its exit status.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::exit(status);  // runs HDF5's exit handlers, which must not crash or hang either
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Fails to overwrite a good file. Returns 0 if the file and its directory are unchanged.
int fail_to_save(const std::string& path, const std::string& reason) {
  const std::string before = read_file(path);
  try {
    write_checkpoint(path, large_checkpoint());
    return 1;
  } catch (const Error& error) {
    if (error.status() != ExitStatus::cannot_write) return 2;
    if (std::string(error.what()).find(reason) == std::string::npos) {
      std::fprintf(stderr, "%s\n", error.what());
      return 3;
    }
  }
  if (read_file(path) != before) return 4;
  if (entries(std::filesystem::path(path).parent_path().string()) != 1) return 5;
  static_cast<void>(read_checkpoint(path, CheckpointUse::resume));
  return 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_limit_of_file_sizes_is_cannot_write_and_keeps_the_old_file) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());

  for (const rlim_t limit :
       {rlim_t{100}, rlim_t{3'000}, rlim_t{70'000}, rlim_t{1'000'000}, rlim_t{4'190'000}}) {
    const int status = in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &size);
      return fail_to_save(directory / "a.h5", "File too large");
    });
    BOOST_TEST(status == 0, "limit " << limit << ": " << status);
  }
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_cannot_write_and_keeps_the_old_file) {
  const TemporaryDirectory directory;
  if (::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=2m") != 0) {
    BOOST_TEST_MESSAGE("skipped: cannot mount a small file system (" << std::strerror(errno)
                                                                     << ")");
    std::fprintf(stderr, "skipped: cannot mount a small file system (%s)\n", std::strerror(errno));
    return;
  }
  write_checkpoint(directory / "a.h5", example_checkpoint());

  const int status =
      in_child([&] { return fail_to_save(directory / "a.h5", "No space left on device"); });

  ::umount(directory.path().c_str());
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_killed_writer_keeps_the_last_good_file) {
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND", "1000000", 1);
    write_checkpoint(directory / "a.h5", large_checkpoint());
    ::_exit(1);
  }
  while (entries(directory.path()) < 2) ::usleep(1000);
  ::usleep(200'000);

  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  BOOST_TEST(entries(directory.path()) == 2u);
  BOOST_TEST((read_checkpoint(directory / "a.h5", CheckpointUse::resume) == example_checkpoint()));
}
