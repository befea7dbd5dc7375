#include "lockstep/data/dataset.hpp"

#include "comm/mpi_fixture.hpp"
#include "data/shard_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

using namespace lockstep;
using namespace lockstep::test;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

/// A directory that rank 0 creates and fills for all ranks; removed when all ranks are done with
/// it.
class SharedDirectory final {
 public:
  SharedDirectory(Communicator& comm, const std::function<void(const std::string&)>& fill)
      : comm_(comm) {
    if (comm.rank() == 0) {
      own_ = std::make_unique<TemporaryDirectory>();
      fill(own_->path());
    }
    path_ = broadcast_text(comm, own_ ? own_->path() : "");
  }
  ~SharedDirectory() { comm_.barrier(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  Communicator& comm_;
  std::unique_ptr<TemporaryDirectory> own_;
  std::string path_;
};

std::string shard_path(const std::string& directory, std::int64_t i, std::int64_t count) {
  return fmt::format("{}/train-{:05}-of-{:05}.h5", directory, i, count);
}

/// Writes shards of 3, 4, 5, ... samples.
void write_shards(const std::string& directory, std::int64_t count, TestShard shard = {}) {
  shard.first = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    shard.samples = 3 + i;
    write_shard(shard_path(directory, i, count), shard);
    shard.first += shard.samples;
  }
}

/// Opens the data set on all ranks. Either all ranks fail with the same error, or none fails.
Failure open_failure(Communicator& comm, const std::string& directory) {
  const Failure failure = failure_of([&] { (void)open_dataset(directory, "train", comm); });
  for (const std::string& text : all_gather_text(comm, failure.text)) {
    BOOST_TEST(text == failure.text);
  }
  const int status = static_cast<int>(failure.status);
  BOOST_TEST(comm.all_reduce_value<std::int32_t>(status, ReduceOp::max) == status);
  return failure;
}

void expect(const Failure& failure, const std::string& part,
            ExitStatus status = ExitStatus::bad_input) {
  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(status), failure.text);
  BOOST_TEST(failure.says(part), failure.text);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int i = 0; i < 1024; ++i) count += ::lseek(i, 0, SEEK_CUR) >= 0 ? 1u : 0u;
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_ranks_see_the_whole_split) {
  const auto comm = make_mpi_communicator();
  const SharedDirectory directory(*comm, [](const std::string& path) { write_shards(path, 5); });

  const auto dataset = open_dataset(directory.path(), "train", *comm);

  const DatasetInfo& info = dataset->info();
  BOOST_TEST(info.samples == 25);
  BOOST_TEST(info.classes == 4);
  BOOST_TEST((info.image == ImageShape{.channels = 3, .height = 6, .width = 5}));
  BOOST_TEST((info.mean == std::vector<float>{0.1F, 0.2F, 0.3F}));
  BOOST_TEST(info.notes.empty());
  const auto identity = static_cast<std::int64_t>(info.identity);
  BOOST_TEST(comm->all_reduce_value(identity, ReduceOp::max) == identity);
  BOOST_TEST(comm->all_reduce_value(identity, ReduceOp::min) == identity);
  RawSample sample;
  for (std::int64_t n = 0; n < 25; ++n) {
    dataset->read(n, sample);
    BOOST_TEST(sample.label == label_of(n));
    BOOST_TEST(std::to_integer<int>(sample.bytes[89]) == pixel_of(n, 89));
  }
  BOOST_TEST(dataset->describe(3) == shard_path(directory.path(), 1, 5) + ": sample 0");
  BOOST_TEST(has_split(directory.path(), "train"));
  BOOST_TEST(!has_split(directory.path(), "val"));
}

BOOST_AUTO_TEST_CASE(class_names_that_are_not_utf8_are_the_same_on_all_ranks) {
  const auto comm = make_mpi_communicator();
  const SharedDirectory directory(*comm, [](const std::string& path) {
    write_shards(path, 2,
                 {.class_names = {"caf\xe9", "gr\xc3\xbcn", "", "\"dog\", hot\\\n\xff\xfe"}});
  });

  const DatasetInfo info = open_dataset(directory.path(), "train", *comm)->info();

  const std::vector<std::string> expected{"caf\\xe9", "gr\xc3\xbcn", "",
                                          "\"dog\", hot\\\\x0a\\xff\\xfe"};
  BOOST_TEST(info.class_names == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_identity_changes_with_a_label_and_with_a_pixel) {
  const auto comm = make_mpi_communicator();
  const auto identity = [&](std::int64_t first, bool checksums) {
    const SharedDirectory directory(*comm, [&](const std::string& path) {
      write_shard(shard_path(path, 0, 1), {.first = first, .checksums = checksums});
    });
    return open_dataset(directory.path(), "train", *comm)->info().identity;
  };

  const auto original = identity(0, true);

  BOOST_TEST(identity(0, true) == original);
  BOOST_TEST(identity(4, true) != original);             // same labels, other pixels
  BOOST_TEST(identity(1, false) != identity(0, false));  // other labels
}

BOOST_AUTO_TEST_CASE(missing_attributes_have_defaults_and_are_noted) {
  const auto comm = make_mpi_communicator();
  const SharedDirectory directory(*comm, [](const std::string& path) {
    write_shards(path, 2, {.checksums = false, .classes = {}, .mean = {}, .std = {}});
  });

  const DatasetInfo info = open_dataset(directory.path(), "train", *comm)->info();

  BOOST_TEST((info.mean == std::vector<float>{0.5F, 0.5F, 0.5F}));
  BOOST_TEST((info.std == std::vector<float>{0.5F, 0.5F, 0.5F}));
  BOOST_TEST(info.classes == 4);
  BOOST_TEST(info.notes.size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_fault_in_any_shard_is_the_same_error_on_all_ranks) {
  const auto comm = make_mpi_communicator();
  for (std::int64_t bad = 0; bad < 4; ++bad) {
    const SharedDirectory directory(*comm, [&](const std::string& path) {
      write_shards(path, 4);
      const std::string file = shard_path(path, bad, 4);
      const std::string bytes = read_file(file);
      write_file(file, bytes.substr(0, bytes.size() / 2));
    });

    expect(open_failure(*comm, directory.path()), shard_path(directory.path(), bad, 4));
  }
}

BOOST_AUTO_TEST_CASE(shards_that_disagree_are_named) {
  const auto comm = make_mpi_communicator();
  const auto with_last = [&](const TestShard& shard) {
    const SharedDirectory directory(*comm, [&](const std::string& path) {
      write_shards(path, 3);
      write_shard(shard_path(path, 2, 3), shard);
    });
    return open_failure(*comm, directory.path());
  };

  expect(with_last({.height = 7}), "train-00002-of-00003.h5 has images of 7x5x3");
  expect(with_last({.classes = 9}), "train-00002-of-00003.h5 have different classes");
  expect(with_last({.mean = {0.1F, 0.2F, 0.4F}}), "different mean");
  expect(with_last({.std = {}}), "different std");
}

BOOST_AUTO_TEST_CASE(missing_shards_and_empty_data_sets_have_their_status) {
  const auto comm = make_mpi_communicator();
  const SharedDirectory missing(*comm, [](const std::string& path) {
    write_shards(path, 3);
    std::filesystem::remove(shard_path(path, 1, 3));
  });
  const SharedDirectory empty(*comm, [](const std::string&) {});
  const SharedDirectory none(
      *comm, [](const std::string& path) { write_shard(shard_path(path, 0, 1), {.samples = 0}); });

  expect(open_failure(*comm, missing.path()), "train-00001-of-00003.h5 is missing",
         ExitStatus::no_input);
  expect(open_failure(*comm, empty.path()), "holds no shards of split train", ExitStatus::no_input);
  expect(open_failure(*comm, none.path()), "has no samples in split train");
}

// File names may contain any bytes. Rank 0 lists the directory and sends the names to all ranks.
BOOST_AUTO_TEST_CASE(a_split_whose_name_is_not_utf_8_is_read) {
  const auto comm = make_mpi_communicator();
  const std::string split = "caf\xe9";
  const SharedDirectory directory(*comm, [&](const std::string& path) {
    write_shard(path + "/" + split + "-00000-of-00002.h5", {.samples = 3});
    write_shard(path + "/" + split + "-00001-of-00002.h5", {.samples = 4, .first = 3});
  });

  const auto dataset = open_dataset(directory.path(), split, *comm);

  BOOST_TEST(dataset->info().samples == 7);
}

BOOST_AUTO_TEST_CASE(open_files_are_bounded_while_threads_read_all_shards) {
  const auto comm = make_mpi_communicator();
  constexpr std::int64_t shards = 150;
  const SharedDirectory directory(*comm, [](const std::string& path) {
    for (std::int64_t i = 0; i < shards; ++i) {
      write_shard(shard_path(path, i, shards), {.samples = 1, .first = i});
    }
  });
  rlimit limit{};
  BOOST_REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlim_t usual = std::exchange(limit.rlim_cur, 512);
  BOOST_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  const std::size_t before = open_descriptors();
  std::vector<int> wrong(4);

  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RawSample sample;
      for (std::int64_t i = 0; i < 4 * shards; ++i) {
        const std::int64_t n = (i * 37 + static_cast<std::int64_t>(t) * 11) % shards;
        dataset->read(n, sample);
        if (std::to_integer<std::uint8_t>(sample.bytes[5]) != pixel_of(n, 5)) ++wrong[t];
      }
    });
  }
  threads.clear();

  BOOST_TEST(std::accumulate(wrong.begin(), wrong.end(), 0) == 0);
  BOOST_TEST(open_descriptors() == before + 512 / 8);
  limit.rlim_cur = usual;
  BOOST_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

BOOST_AUTO_TEST_CASE(synthetic_samples_are_a_function_of_seed_and_index) {
  const SyntheticOptions options{
      .samples = 200, .image = {.channels = 3, .height = 12, .width = 10}, .classes = 7, .seed = 5};
  const auto first = make_synthetic_dataset(options);
  const auto second = make_synthetic_dataset(options);
  auto changed = options;
  changed.seed = 6;
  const auto other = make_synthetic_dataset(changed);
  RawSample a;
  RawSample b;
  std::vector<int> labels(7);

  for (std::int64_t n = 0; n < 200; ++n) {
    first->read(n, a);
    second->read(n, b);
    BOOST_TEST((a.bytes == b.bytes && a.label == b.label));
    BOOST_REQUIRE(a.label >= 0 && a.label < 7);
    BOOST_REQUIRE_EQUAL(a.bytes.size(), 360u);
    ++labels[static_cast<std::size_t>(a.label)];
    other->read(n, b);
    BOOST_TEST((a.bytes != b.bytes));
  }

  for (const int count : labels) BOOST_TEST(count > 5);
  BOOST_TEST(first->info().identity != other->info().identity);
}

BOOST_AUTO_TEST_CASE(renumbered_data_equals_data_stored_with_these_labels) {
  const auto comm = make_mpi_communicator();
  const ClassNumbering numbering{2, 0, 3, 1};
  for (const bool checksums : {true, false}) {
    const auto open = [&](const TestShard& shard, const auto& check) {
      const SharedDirectory directory(
          *comm, [&](const std::string& path) { write_shards(path, 3, shard); });
      check(open_dataset(directory.path(), "train", *comm));
    };
    std::uint32_t stored_identity = 0;
    open({.checksums = checksums, .class_names = {"a", "b", "c", "d"}, .numbering = {2, 0, 3, 1}},
         [&](const auto& data) { stored_identity = data->info().identity; });
    open({.checksums = checksums, .class_names = {"b", "d", "a", "c"}}, [&](auto data) {
      const std::uint32_t identity = renumbered_identity(data->info(), numbering, *comm);
      BOOST_TEST(identity == stored_identity);
      BOOST_TEST(identity != data->info().identity);

      data->renumber(
          {.numbering = numbering, .class_names = {"a", "b", "c", "d"}, .identity = identity});

      BOOST_TEST(data->info().class_names.at(3) == "d");
      BOOST_TEST(data->info().identity == identity);
      RawSample sample;
      for (std::int64_t n = 0; n < data->info().samples; ++n) {
        data->read(n, sample);
        BOOST_TEST(sample.label == numbering[static_cast<std::size_t>(label_of(n))]);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(classes_without_samples_are_found_in_all_shards) {
  const auto comm = make_mpi_communicator();
  const auto info = [&](const TestShard& shard, std::int64_t count) {
    const SharedDirectory directory(
        *comm, [&](const std::string& path) { write_shards(path, count, shard); });
    return open_dataset(directory.path(), "train", *comm)->info();
  };

  BOOST_TEST(info({}, 2).empty_classes.empty());
  BOOST_TEST(info({.classes = {}}, 3).empty_classes.empty());
  BOOST_TEST(info({.classes = 6}, 3).empty_classes == (std::vector<std::int64_t>{4, 5}),
             boost::test_tools::per_element());
  BOOST_TEST(info({.classes = {}, .numbering = {1, 1, 2, 4}}, 3).empty_classes ==
                 (std::vector<std::int64_t>{0, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(info({}, 1).empty_classes == std::vector<std::int64_t>{3},
             boost::test_tools::per_element());  // of three samples
}

BOOST_AUTO_TEST_CASE(names_of_shards_that_differ_in_line_breaks_alone_differ) {
  const auto comm = make_mpi_communicator();
  const SharedDirectory directory(*comm, [](const std::string& path) {
    write_shard(shard_path(path, 0, 2), {.class_names = {"a\nb", "c", "d", "e"}});
    write_shard(shard_path(path, 1, 2), {.class_names = {"a", "b\nc", "d", "e"}});
  });

  expect(open_failure(*comm, directory.path()), "different class_names");
}
