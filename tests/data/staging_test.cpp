#include "lockstep/data/staging.hpp"

#include "comm/mpi_fixture.hpp"
#include "data/shard_copy.hpp"
#include "data/shard_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/data/dataset.hpp"

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

using namespace lockstep;
using namespace lockstep::test;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t shard_samples = 40;

std::string shard_name(std::int64_t i, std::int64_t count) {
  return fmt::format("train-{:05}-of-{:05}.h5", i, count);
}

/// A data set of `count` shards and a directory for copies, visible to all ranks.
class Fixture final {
 public:
  explicit Fixture(std::int64_t count, bool checksums = true) : comm_(make_mpi_communicator()) {
    if (comm_->rank() == 0) {
      own_ = std::make_unique<TemporaryDirectory>();
      fs::create_directory(*own_ / "data");
      for (std::int64_t i = 0; i < count; ++i) {
        write_shard(*own_ / ("data/" + shard_name(i, count)),
                    {.samples = shard_samples, .first = i * shard_samples, .checksums = checksums});
      }
    }
    path_ = broadcast_text(*comm_, own_ ? own_->path() : "");
    dataset_ = open_dataset(data(), "train", *comm_);
  }
  ~Fixture() { comm_->barrier(); }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  [[nodiscard]] std::string data() const { return path_ + "/data"; }
  [[nodiscard]] std::string stage() const { return path_ + "/stage"; }
  [[nodiscard]] Communicator& comm() { return *comm_; }
  [[nodiscard]] Dataset& dataset() { return *dataset_; }

  /// Begins staging as if all ranks were on one node.
  [[nodiscard]] std::shared_ptr<Staging> begin_staging() {
    const ProcessGrid grid{.rank = comm_->rank(),
                           .world_size = comm_->size(),
                           .local_rank = comm_->rank(),
                           .local_size = comm_->size(),
                           .node = 0,
                           .nodes = 1,
                           .host = "here"};
    const auto staging =
        std::make_shared<Staging>(StagingOptions{.directory = stage(), .job = "test", .cores = {}},
                                  dataset_->shards_to_copy(), grid, *comm_);
    dataset_->read_copies(staging, 0);
    return staging;
  }
  /// Truncates the original shards, also for ranks that have them open.
  void empty_originals() {
    comm_->barrier();
    if (comm_->rank() == 0) {
      for (const auto& entry : fs::directory_iterator(data())) fs::resize_file(entry.path(), 0);
    }
    comm_->barrier();
  }
  void check_all_samples() {
    RawSample sample;
    for (std::int64_t n = 0; n < dataset_->info().samples; ++n) {
      dataset_->read(n, sample);
      BOOST_REQUIRE(sample.label == label_of(n));
      BOOST_REQUIRE(std::to_integer<int>(sample.bytes[89]) == pixel_of(n, 89));
    }
  }

 private:
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<TemporaryDirectory> own_;
  std::string path_;
  std::unique_ptr<Dataset> dataset_;
};

/// Waits until the copies are complete on this rank's node.
void wait_until_ready(const Staging& staging, std::size_t shards) {
  for (std::size_t i = 0; i < shards; ++i) {
    while (!staging.ready(i)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// All messages of a finished staging; only rank 0 has any.
std::vector<Staging::News> all_news(Staging& staging) {
  std::vector<Staging::News> all;
  while (all.empty() || all.back().bad) {
    for (Staging::News& news : staging.take_news()) all.push_back(std::move(news));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all;
}

bool is_empty(const std::string& directory) {
  return fs::directory_iterator(directory) == fs::directory_iterator();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_plan_takes_the_shards_that_fit_in_order) {
  const std::vector<std::uint64_t> sizes{40, 50, 30, 20, 10};

  BOOST_TEST((plan_staging(sizes, 1000, {}).chosen == std::vector<std::size_t>{0, 1, 2, 3, 4}));
  const StagePlan part = plan_staging(sizes, 80, {});
  BOOST_TEST((part.chosen == std::vector<std::size_t>{0, 2, 4}));
  BOOST_TEST(part.bytes == 80);
  BOOST_TEST(part.left_out_bytes == 70);
  BOOST_TEST((plan_staging(sizes, 1000, {.node = 1, .nodes = 2, .host = ""}).chosen ==
              std::vector<std::size_t>{2, 3, 4, 0, 1}));
  BOOST_TEST((plan_staging(sizes, 80, {.node = 3, .nodes = 5, .host = ""}).chosen ==
              std::vector<std::size_t>{3, 4, 0}));
  BOOST_TEST(plan_staging(sizes, 9, {}).chosen.empty());
  BOOST_TEST(plan_staging({}, 9, {}).chosen.empty());
}

BOOST_AUTO_TEST_CASE(all_ranks_read_the_copies_and_the_copies_are_removed) {
  for (const bool checksums : {true, false}) {
    Fixture fixture(3, checksums);
    fixture.check_all_samples();  // opens the originals
    auto staging = fixture.begin_staging();
    wait_until_ready(*staging, 3);
    fixture.empty_originals();

    fixture.check_all_samples();

    BOOST_TEST(staging->shortages().empty());
    BOOST_TEST(!is_empty(fixture.stage()));
    fixture.comm().barrier();
    fixture.dataset().read_copies(nullptr, 0);
    staging.reset();
    fixture.comm().barrier();
    BOOST_TEST(is_empty(fixture.stage()));
  }
}

BOOST_AUTO_TEST_CASE(samples_are_correct_while_shards_are_copied) {
  Fixture fixture(4);
  const auto staging = fixture.begin_staging();

  std::vector<std::jthread> readers(4);
  for (std::jthread& reader : readers) {
    reader = std::jthread([&] {
      do {
        fixture.check_all_samples();
        // Copying has a low priority, and would get no core.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } while (!staging->ready(3));
      fixture.check_all_samples();
    });
  }
}

BOOST_AUTO_TEST_CASE(samples_of_a_deleted_copy_are_read_from_the_original) {
  Fixture fixture(2);
  const auto staging = fixture.begin_staging();
  wait_until_ready(*staging, 2);
  fixture.comm().barrier();
  if (fixture.comm().rank() == 0) fs::remove(staging->path(1));
  fixture.comm().barrier();

  fixture.check_all_samples();
}

BOOST_AUTO_TEST_CASE(a_shard_that_changed_since_it_was_validated_is_not_copied) {
  for (const bool checksums : {true, false}) {
    Fixture fixture(2, checksums);
    if (fixture.comm().rank() == 0) {
      write_shard(fixture.data() + "/" + shard_name(1, 2),
                  {.samples = shard_samples, .first = 7, .checksums = checksums});
    }
    fixture.comm().barrier();
    const auto staging = fixture.begin_staging();
    if (fixture.comm().rank() != 0) continue;

    const auto news = all_news(*staging);

    BOOST_TEST(staging->ready(0));
    BOOST_TEST(!staging->ready(1));
    BOOST_REQUIRE(news.size() == 2);
    BOOST_TEST(news[0].bad);
    BOOST_TEST(news[0].text.find(shard_name(1, 2) + " stays in") != std::string::npos,
               news[0].text);
    BOOST_TEST(news[1].text.find("1 of 2 shards") != std::string::npos, news[1].text);
    BOOST_TEST(!fs::exists(staging->path(1)));
    BOOST_TEST(!fs::exists(staging->path(1) + ".part"));
  }
}

BOOST_AUTO_TEST_CASE(a_pixel_that_changed_under_its_checksum_is_not_copied) {
  Fixture fixture(1);
  if (fixture.comm().rank() != 0) return;
  const ShardToCopy shard = fixture.dataset().shards_to_copy().front();
  const std::string source = shard.directory + "/" + shard.name;
  std::string bytes = read_file(source);
  bytes[*shard.header.images.offset + 100] ^= 1;
  write_file(source, bytes);

  const Failure failure =
      failure_of([&] { (void)copy_shard(shard, fixture.data() + "/copy", {}); });

  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(ExitStatus::bad_input));
  BOOST_TEST(failure.says("sample 1 has checksum"), failure.text);
}

BOOST_AUTO_TEST_CASE(a_full_device_is_reported) {
  Fixture fixture(1);
  if (fixture.comm().rank() != 0) return;
  const ShardToCopy shard = fixture.dataset().shards_to_copy().front();

  const Failure failure = failure_of([&] { (void)copy_shard(shard, "/dev/full", {}); });

  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(ExitStatus::cannot_write));
  BOOST_TEST(failure.says("No space left"), failure.text);
}

BOOST_AUTO_TEST_CASE(shards_are_read_from_the_original_if_copying_fails) {
  Fixture fixture(2);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 2000, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  {
    const auto staging = fixture.begin_staging();
    if (fixture.comm().rank() == 0) {
      const auto news = all_news(*staging);

      BOOST_REQUIRE(news.size() == 3);
      BOOST_TEST(news[0].bad);
      BOOST_TEST(news[0].text.find("cannot write") != std::string::npos, news[0].text);
      BOOST_TEST(news[2].text.find("0 of 2 shards") != std::string::npos, news[2].text);
    }
    fixture.check_all_samples();
    fixture.comm().barrier();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
}

BOOST_AUTO_TEST_CASE(copies_of_dead_jobs_are_removed_and_copies_of_running_jobs_are_kept) {
  Fixture fixture(1);
  const std::string dead = fixture.stage() + "/lockstep-stage-dead-123456";
  const std::string living = fixture.stage() + "/lockstep-stage-living-123456";
  const std::string foreign = fixture.stage() + "/results";
  int held = -1;
  if (fixture.comm().rank() == 0) {
    for (const std::string& directory : {dead, living, foreign}) {
      fs::create_directories(directory);
      write_file(directory + "/lock", "");
    }
    held = ::open((living + "/lock").c_str(), O_RDWR | O_CLOEXEC);
    BOOST_REQUIRE(::flock(held, LOCK_EX | LOCK_NB) == 0);
  }
  fixture.comm().barrier();

  const auto staging = fixture.begin_staging();

  BOOST_TEST(!fs::exists(dead));
  BOOST_TEST(fs::exists(living));
  BOOST_TEST(fs::exists(foreign));
  fixture.comm().barrier();
  if (held >= 0) ::close(held);
}

BOOST_AUTO_TEST_CASE(a_stage_directory_that_cannot_be_created_fails_on_all_ranks) {
  Fixture fixture(1);
  if (fixture.comm().rank() == 0) write_file(fixture.stage(), "in the way");
  fixture.comm().barrier();

  const Failure failure = failure_of([&] { (void)fixture.begin_staging(); });

  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(ExitStatus::cannot_write));
  BOOST_TEST(failure.says("--stage-dir"), failure.text);
}
