#include "lockstep/data/pack.hpp"

#include "comm/mpi_fixture.hpp"
#include "data/pack_fixture.hpp"
#include "data/shard_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/shard_file.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <set>

using namespace lockstep;
using namespace lockstep::test;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

constexpr std::size_t train_samples = 300;
constexpr std::size_t val_samples = 50;

/// A directory that rank 0 creates for all ranks; removed when all ranks are done with it.
struct Shared {
  Shared() : comm(make_mpi_communicator()) {
    if (comm->rank() == 0) own = std::make_unique<TemporaryDirectory>();
    path = broadcast_text(*comm, own ? own->path() : "");
    on_first([&] {
      std::filesystem::create_directories(path + "/in");
      write_idx_part(path + "/in", "train", train_samples);
      write_idx_part(path + "/in", "t10k", val_samples);
    });
  }
  ~Shared() { comm->barrier(); }
  template <typename Work>
  void on_first(Work work) {
    if (comm->rank() == 0) work();
    comm->barrier();
  }
  PackResult pack_idx(const std::string& output, Communicator& with, bool overwrite = false) const {
    const auto source = open_mnist_source(path + "/in");
    return pack(
        *source,
        {.directory = path + "/" + output, .shards = 4, .overwrite = overwrite, .progress = {}},
        with);
  }

  std::unique_ptr<Communicator> comm;
  std::unique_ptr<TemporaryDirectory> own;
  std::string path;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(every_sample_is_packed_once_with_its_label_and_checksum, Shared) {
  const PackResult result = pack_idx("out", *comm);

  BOOST_TEST(result.train_samples == 300);
  BOOST_TEST(result.val_samples == 50);
  BOOST_TEST(result.train_shards == 4);
  BOOST_TEST(result.val_shards == 1);
  BOOST_TEST(result.classes == 10);
  const std::vector<std::string> expected{"train-00000-of-00004.h5", "train-00001-of-00004.h5",
                                          "train-00002-of-00004.h5", "train-00003-of-00004.h5",
                                          "val-00000-of-00001.h5"};
  std::vector<std::string> files = expected;
  files.insert(files.begin(), packing_record_name);
  BOOST_TEST(names_in(path + "/out") == files, boost::test_tools::per_element());
  BOOST_TEST(entries_of(result) == 350);
  for (const std::string& name : expected) {
    BOOST_TEST(verify_shard(path + "/out/" + name).checksums.has_value());
  }
  const auto data = open_dataset(path + "/out", "train", *comm);
  std::map<std::string, int> seen;
  RawSample sample;
  for (std::int64_t i = 0; i < data->info().samples; ++i) {
    data->read(i, sample);
    std::string key(reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size());
    ++seen[key + static_cast<char>(sample.label)];
  }
  for (std::size_t s = 0; s < train_samples; ++s) {
    std::string key;
    for (std::size_t i = 0; i < 20; ++i) key.push_back(static_cast<char>(idx_pixel(s, i)));
    --seen[key + static_cast<char>(idx_label(s))];
  }
  for (const auto& [key, count] : seen) BOOST_TEST(count == 0);
}

BOOST_FIXTURE_TEST_CASE(bytes_do_not_depend_on_the_number_of_ranks, Shared) {
  (void)pack_idx("shared", *comm);
  on_first([&] {
    const auto alone = make_self_communicator();
    (void)pack_idx("alone", *alone);

    for (const std::string& name : names_in(path + "/alone")) {
      BOOST_TEST((read_file(path + "/alone/" + name) == read_file(path + "/shared/" + name)), name);
    }
    BOOST_TEST(names_in(path + "/alone").size() == names_in(path + "/shared").size());
  });
}

BOOST_FIXTURE_TEST_CASE(mean_and_deviation_are_those_of_the_training_pixels, Shared) {
  const PackResult result = pack_idx("out", *comm);

  double sum = 0;
  double squares = 0;
  constexpr double count = train_samples * 20;
  for (std::size_t s = 0; s < train_samples; ++s) {
    for (std::size_t i = 0; i < 20; ++i) sum += idx_pixel(s, i) / 255.0;
  }
  for (std::size_t s = 0; s < train_samples; ++s) {
    for (std::size_t i = 0; i < 20; ++i) {
      squares += std::pow(idx_pixel(s, i) / 255.0 - sum / count, 2);
    }
  }
  // The tolerance is one rounding to float.
  BOOST_TEST(std::abs(result.mean.at(0) - sum / count) < 1e-7);
  BOOST_TEST(std::abs(result.std.at(0) - std::sqrt(squares / count)) < 1e-7);
  const ShardHeader header = ShardFile(path + "/out/val-00000-of-00001.h5").header();
  BOOST_TEST(header.mean == result.mean, boost::test_tools::per_element());
  BOOST_TEST(header.std == result.std, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(consecutive_samples_are_a_fair_mix_of_sorted_classes, Shared) {
  (void)pack_idx("out", *comm);

  const auto data = open_dataset(path + "/out", "train", *comm);
  RawSample sample;
  for (std::int64_t first = 0; first + 30 <= 300; first += 30) {
    std::set<std::int64_t> labels;
    for (std::int64_t i = first; i < first + 30; ++i) {
      data->read(i, sample);
      labels.insert(sample.label);
    }
    // The probability of fewer than 6 different classes in 30 fair draws from ten is below 1e-5.
    BOOST_TEST(labels.size() >= 6u);
  }
}

BOOST_FIXTURE_TEST_CASE(a_packed_data_set_is_replaced_only_with_overwrite, Shared) {
  (void)pack_idx("out", *comm);
  on_first([&] {
    write_file(path + "/out/train-00007-of-00009.h5", "an older one");
    write_file(path + "/out/.lockstep-tmp-0123456789abcdef0123456789abcdef", "of a killed pack");
  });

  const Failure refused = failure_of([&] { (void)pack_idx("out", *comm); });
  (void)pack_idx("out", *comm, /*overwrite=*/true);

  BOOST_TEST(static_cast<int>(refused.status) == 64);
  BOOST_TEST(refused.says("--overwrite"));
  BOOST_TEST(names_in(path + "/out").size() == 6u);
}

BOOST_FIXTURE_TEST_CASE(a_finished_packing_is_not_repeated, Shared) {
  const PackResult first = pack_idx("out", *comm);
  std::string shard;
  on_first([&] { shard = read_file(path + "/out/train-00001-of-00004.h5"); });

  const PackResult again = pack_idx("out", *comm);

  BOOST_TEST(again.train_samples == first.train_samples);
  BOOST_TEST(again.val_samples == first.val_samples);
  BOOST_TEST(again.bytes == first.bytes);
  BOOST_TEST(again.mean == first.mean, boost::test_tools::per_element());
  BOOST_TEST(again.earlier_shards == 5);
  on_first([&] {
    BOOST_TEST((shard == read_file(path + "/out/train-00001-of-00004.h5")));
    BOOST_TEST(!std::filesystem::exists(path + "/out/unfinished"));
  });
  // What is not known to be this packing's is refused.
  on_first([&] { write_file(path + "/out/train-00001-of-00004.h5", "shorter"); });
  const Failure changed = failure_of([&] { (void)pack_idx("out", *comm); });
  BOOST_TEST(static_cast<int>(changed.status) == 64);
  on_first([&] {
    write_file(path + "/out/train-00001-of-00004.h5", shard);
    write_file(path + "/out/" + packing_record_name, "{");
  });
  BOOST_TEST(failure_of([&] { (void)pack_idx("out", *comm); }).says("--overwrite"));
}

BOOST_FIXTURE_TEST_CASE(more_shards_than_samples_are_refused, Shared) {
  const auto source = open_mnist_source(path + "/in");

  const Failure failure = failure_of([&] {
    (void)pack(*source, {.directory = path + "/out", .shards = 301, .progress = {}}, *comm);
  });

  BOOST_TEST(static_cast<int>(failure.status) == 64);
  BOOST_TEST(failure.says("use 1 to 300"));
}

BOOST_FIXTURE_TEST_CASE(packing_a_bad_image_leaves_no_shard_and_continues_without_it, Shared) {
  on_first([&] {
    for (int i = 0; i < 12; ++i) {
      std::filesystem::create_directories(path + "/tree/cat");
      write_file(path + "/tree/cat/" + std::to_string(i) + ".png", flat_png(8, 8, 10));
    }
    write_file(path + "/tree/cat/7.png", flat_png(8, 8, 10).substr(0, 40));
  });
  const auto source = open_folder_source({.directory = path + "/tree", .image_size = 8}, *comm);
  PackOptions options{.directory = path + "/out", .shards = 6, .progress = {}};

  const Failure failure = failure_of([&] { (void)pack(*source, options, *comm); });
  comm->barrier();

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(failure.says("cat/7.png"), failure.text);
  BOOST_TEST(names_in(path + "/out") == std::vector<std::string>{"unfinished"},
             boost::test_tools::per_element());
  comm->barrier();
  options.on_bad = OnBad::skip;
  BOOST_TEST(pack(*source, options, *comm).skipped == 1);
}

BOOST_FIXTURE_TEST_CASE(a_finished_shard_of_another_writer_is_packed_again, Shared) {
  on_first([&] {
    const auto alone = make_self_communicator();
    for (int i = 0; i < 12; ++i) {
      std::filesystem::create_directories(path + "/tree/cat");
      write_file(path + "/tree/cat/" + std::to_string(i) + ".png", flat_png(8, 8, 10));
    }
    const auto source = open_folder_source({.directory = path + "/tree", .image_size = 8}, *alone);
    PackOptions options{.directory = path + "/out", .shards = 6, .progress = {}};
    options.progress = [calls = 0](const PackedSoFar&) mutable {
      if (++calls == 8) fail(ExitStatus::internal, "interrupted");
    };
    BOOST_TEST(failure_of([&] { (void)pack(*source, options, *alone); }).says("interrupted"));
    int changed = 0;
    for (const std::string& name : names_in(path + "/out/unfinished")) {
      if (!name.ends_with(".h5")) continue;
      const std::string file = path + "/out/unfinished/" + name;
      write_file(file, "another" + read_file(file).substr(7));  // as long as before
      ++changed;
    }
    BOOST_TEST(changed > 0);
    options.progress = {};

    const PackResult result = pack(*source, options, *alone);

    BOOST_TEST(result.train_samples == 12);
    for (const std::string& name : names_in(path + "/out")) {
      if (name.ends_with(".h5")) static_cast<void>(verify_shard(path + "/out/" + name));
    }
  });
}

BOOST_FIXTURE_TEST_CASE(an_interrupted_packing_is_continued_to_the_same_bytes, Shared) {
  on_first([&] {
    const auto alone = make_self_communicator();
    (void)pack_idx("expected", *alone);
  });
  const auto source = open_mnist_source(path + "/in");
  PackOptions options{.directory = path + "/out", .shards = 4, .progress = {}};
  std::int64_t calls = 0;
  for (const std::int64_t last : {1, 70, 80, 90, 200}) {
    options.progress = [&](const PackedSoFar&) {
      if (++calls == last) fail(ExitStatus::internal, "interrupted");
    };
    calls = 0;
    // The ranks share the samples, so that not every number interrupts.
    const Failure failure = failure_of([&] { (void)pack(*source, options, *comm); });
    if (failure.status == ExitStatus::ok) break;
    BOOST_TEST(failure.says("interrupted"), failure.text);
    BOOST_TEST(failure_of([&] {
                 (void)open_dataset(path + "/out", "train", *comm);
               }).says("run the same lockstep pack again"));
  }
  on_first([&] {
    if (!std::filesystem::exists(path + "/out/unfinished")) return;
    // A shard whose file was cut short, or was lost while its attributes were added, is packed
    // again.
    const std::string shard = path + "/out/unfinished/train-00000-of-00004.h5";
    if (std::filesystem::exists(shard)) std::filesystem::resize_file(shard, 1000);
    write_file(path + "/out/unfinished/.lockstep-tmp-0123456789abcdef0123456789abcdef",
               "of a killed pack");
  });

  options.progress = {};
  std::int64_t earlier = 0;
  if (std::filesystem::exists(path + "/out/unfinished")) {
    comm->barrier();
    earlier = pack(*source, options, *comm).earlier_shards;
    BOOST_TEST(earlier >= 1);
    BOOST_TEST(earlier < 5);
  }

  on_first([&] {
    for (const std::string& name : names_in(path + "/expected")) {
      BOOST_TEST((read_file(path + "/expected/" + name) == read_file(path + "/out/" + name)), name);
    }
    BOOST_TEST(names_in(path + "/out").size() == 6u);
  });
}

BOOST_FIXTURE_TEST_CASE(a_packing_interrupted_while_it_publishes_is_continued, Shared) {
  const auto source = open_mnist_source(path + "/in");
  PackOptions options{.directory = path + "/out", .shards = 4, .progress = {}};
  on_first([&] {
    const auto alone = make_self_communicator();
    (void)pack_idx("expected", *alone);
    (void)pack_idx("out", *alone);
    // All shards but the last are finished.
    std::int64_t calls = 0;
    options.overwrite = true;
    options.progress = [&](const PackedSoFar&) {
      if (++calls == 349) fail(ExitStatus::internal, "interrupted");
    };
    BOOST_TEST(failure_of([&] { (void)pack(*source, options, *alone); }).says("interrupted"));
    // Until all are written, the older set stays.
    BOOST_TEST(names_in(path + "/out").size() == 7u);
    for (const std::string& name : names_in(path + "/expected")) {
      std::filesystem::remove(path + "/out/" + name);
    }
    write_file(path + "/out/unfinished/publishing", "");
    const std::string published = "/train-00001-of-00004.h5";
    std::filesystem::remove(path + "/out/unfinished" + published);
    std::filesystem::copy_file(path + "/expected" + published, path + "/out" + published);
    // This one was lost while its attributes were added.
    std::filesystem::remove(path + "/out/unfinished/train-00002-of-00004.h5");
  });
  options.overwrite = false;
  options.progress = {};

  const PackResult result = pack(*source, options, *comm);

  BOOST_TEST(result.earlier_shards == 3);
  on_first([&] {
    for (const std::string& name : names_in(path + "/expected")) {
      BOOST_TEST((read_file(path + "/expected/" + name) == read_file(path + "/out/" + name)), name);
    }
    BOOST_TEST(names_in(path + "/out").size() == 6u);
  });
}

BOOST_FIXTURE_TEST_CASE(a_packing_is_continued_only_with_the_same_settings, Shared) {
  const auto source = open_mnist_source(path + "/in");
  PackOptions options{.directory = path + "/out", .shards = 4, .progress = {}};
  on_first([&] {
    const auto alone = make_self_communicator();
    std::int64_t calls = 0;
    options.progress = [&](const PackedSoFar&) {
      if (++calls == 100) fail(ExitStatus::internal, "interrupted");
    };
    BOOST_TEST(failure_of([&] { (void)pack(*source, options, *alone); }).says("interrupted"));
  });
  options.progress = {};
  options.seed = 1;

  const Failure refused = failure_of([&] { (void)pack(*source, options, *comm); });
  options.overwrite = true;
  const PackResult result = pack(*source, options, *comm);

  BOOST_TEST(static_cast<int>(refused.status) == 64);
  BOOST_TEST(refused.says("packed differently (seed: 0)"), refused.text);
  BOOST_TEST(result.earlier_shards == 0);
}

BOOST_FIXTURE_TEST_CASE(bad_images_are_skipped_and_listed_in_the_sources_order, Shared) {
  on_first([&] {
    for (const char* name : {"cat", "dog"}) {
      std::filesystem::create_directories(path + "/tree/" + name);
      for (int i = 0; i < 9; ++i) {
        write_file(path + "/tree/" + name + "/" + std::to_string(i) + ".png", flat_png(8, 8, 10));
      }
    }
    write_file(path + "/tree/cat/7.png", flat_png(8, 8, 10).substr(0, 40));
    write_file(path + "/tree/dog/0.png", "");
    write_file(path + "/tree/cat/2.png", "GIF89a");
  });
  const auto source = open_folder_source({.directory = path + "/tree", .image_size = 8}, *comm);
  const PackOptions options{
      .directory = path + "/out", .shards = 3, .on_bad = OnBad::skip, .progress = {}};

  const PackResult result = pack(*source, options, *comm);

  BOOST_TEST(result.train_samples == 15);
  BOOST_TEST(result.skipped == 3);
  const auto data = open_dataset(path + "/out", "train", *comm);
  BOOST_TEST(data->info().samples == 15);
  on_first([&] {
    const std::string list = read_file(path + "/out/skipped.txt");
    std::vector<std::string> paths;
    for (std::size_t begin = 0; begin < list.size(); begin = list.find('\n', begin) + 1) {
      paths.push_back(list.substr(begin, list.find('\t', begin) - begin));
    }
    const std::vector<std::string> expected{path + "/tree/cat/2.png", path + "/tree/cat/7.png",
                                            path + "/tree/dog/0.png"};
    BOOST_TEST(paths == expected, boost::test_tools::per_element());
    const auto alone = make_self_communicator();
    PackOptions other = options;
    other.directory = path + "/alone";
    (void)pack(*source, other, *alone);
    for (const std::string& name : names_in(path + "/alone")) {
      BOOST_TEST((read_file(path + "/alone/" + name) == read_file(path + "/out/" + name)), name);
    }
  });
}

BOOST_FIXTURE_TEST_CASE(a_class_that_is_mostly_bad_is_not_skipped, Shared) {
  on_first([&] {
    for (const char* name : {"cat", "dog"}) {
      std::filesystem::create_directories(path + "/tree/" + name);
      for (int i = 0; i < 5; ++i) {
        const bool bad = *name == 'd' && i < 3;
        write_file(path + "/tree/" + name + "/" + std::to_string(i) + ".png",
                   bad ? "" : flat_png(8, 8, 10));
      }
    }
  });
  const auto pack_with = [&](std::int64_t shards) {
    const auto source = open_folder_source({.directory = path + "/tree", .image_size = 8}, *comm);
    return failure_of([&] {
      (void)pack(*source,
                 {.directory = path + "/out-" + std::to_string(shards),
                  .shards = shards,
                  .on_bad = OnBad::skip,
                  .progress = {}},
                 *comm);
    });
  };

  const Failure mostly = pack_with(1);
  const Failure shard = pack_with(10);

  BOOST_TEST(static_cast<int>(mostly.status) == 65);
  BOOST_TEST(mostly.says("3 of 5 training images of class dog"), mostly.text);
  BOOST_TEST(mostly.says("dog/0.png"), mostly.text);
  BOOST_TEST(static_cast<int>(shard.status) == 65);
  BOOST_TEST(shard.says("none of the 1 samples"), shard.text);
}

BOOST_FIXTURE_TEST_CASE(jpeg_files_are_stored_unchanged, Shared) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 8; ++i) {
    const auto jpeg = flat_jpeg({.height = 10 + i, .width = 20, .channels = 3}, 60 + i);
    files[(i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".jpg"] = {jpeg.begin(), jpeg.end()};
  }
  on_first([&] {
    std::filesystem::create_directories(path + "/tree/cat");
    std::filesystem::create_directories(path + "/tree/dog");
    for (const auto& [name, bytes] : files) write_file(path + "/tree/" + name, bytes);
  });
  const auto source =
      open_folder_source({.directory = path + "/tree", .keep_encoded = true}, *comm);

  const PackResult result =
      pack(*source, {.directory = path + "/out", .shards = 3, .progress = {}}, *comm);

  BOOST_TEST(result.mean.size() == 3u);
  BOOST_TEST(std::abs(result.mean[1] - 63.5 / 255) < 2.0 / 255);  // JPEG is lossy
  const auto data = open_dataset(path + "/out", "train", *comm);
  BOOST_TEST(data->info().encoded);
  BOOST_TEST(data->info().samples == 8);
  std::multiset<std::string> expected;
  std::multiset<std::string> found;
  for (const auto& [name, bytes] : files) expected.insert((name[0] == 'c' ? "0" : "1") + bytes);
  RawSample sample;
  for (std::int64_t i = 0; i < 8; ++i) {
    data->read(i, sample);
    found.insert(
        std::to_string(sample.label) +
        std::string(reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()));
  }
  BOOST_TEST((found == expected));
}

BOOST_AUTO_TEST_CASE(the_number_of_shards_keeps_them_small) {
  BOOST_TEST(shards_for(0, 10, 256) == 1);
  BOOST_TEST(shards_for(std::uint64_t{256} << 20, 1000, 256) == 1);
  BOOST_TEST(shards_for((std::uint64_t{256} << 20) + 1, 1000, 256) == 2);
  BOOST_TEST(shards_for(std::uint64_t{1} << 40, 1000, 256) == 1000);
}
