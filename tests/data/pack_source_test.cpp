#include "lockstep/data/pack_source.hpp"

#include "data/pack_fixture.hpp"
#include "data/shard_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string cifar_batch(std::size_t records, const std::string& labels) {
  std::string text;
  for (std::size_t i = 0; i < records; ++i)
    text += labels + std::string(3072, static_cast<char>(i));
  return text;
}

std::unique_ptr<PackSource> open_folder(const ImageOptions& options) {
  const auto alone = make_self_communicator();
  return open_folder_source(options, *alone);
}

void make_folder(const std::string& path) {
  std::filesystem::create_directories(path);
}

template <typename Open>
void check_fails(ExitStatus status, const std::string& reason, Open open) {
  const Failure failure = failure_of([&] { (void)open(); });
  BOOST_TEST(static_cast<int>(failure.status) == static_cast<int>(status), reason);
  BOOST_TEST(failure.says(reason), failure.text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(mnist_files_give_both_parts) {
  const TemporaryDirectory folder;
  write_idx_part(folder.path(), "train", 300);
  write_idx_part(folder.path(), "t10k", 40);

  const auto source = open_mnist_source(folder.path());

  BOOST_TEST(source->samples(SourcePart::train) == 300);
  BOOST_TEST(source->samples(SourcePart::val) == 40);
  BOOST_TEST((source->info().image == ImageShape{.channels = 1, .height = 4, .width = 5}));
  BOOST_TEST(source->info().classes == 10);
  RawSample sample;
  const auto pixels = source->read(SourcePart::train, 299, sample).pixels;
  BOOST_TEST(sample.label == idx_label(299));
  BOOST_TEST(pixels.size() == 20u);
  BOOST_TEST(std::to_integer<int>(sample.bytes[19]) == idx_pixel(299, 19));
}

BOOST_AUTO_TEST_CASE(mnist_without_a_test_part_has_no_split_val) {
  const TemporaryDirectory folder;
  write_idx_part(folder.path(), "train", 3);

  BOOST_TEST(open_mnist_source(folder.path())->samples(SourcePart::val) == 0);
}

BOOST_AUTO_TEST_CASE(mnist_files_may_have_a_dot_in_their_names) {
  const TemporaryDirectory folder;
  write_idx_part(folder.path(), "train", 3);
  write_idx_part(folder.path(), "t10k", 2);
  for (const char* part : {"t10k-images", "t10k-labels"}) {
    const std::string ending = std::string(part).ends_with("images") ? "idx3-ubyte" : "idx1-ubyte";
    std::filesystem::rename(folder / (std::string(part) + "-" + ending),
                            folder / (std::string(part) + "." + ending));
  }

  BOOST_TEST(open_mnist_source(folder.path())->samples(SourcePart::val) == 2);
}

BOOST_AUTO_TEST_CASE(test_data_under_another_name_is_not_missed) {
  const TemporaryDirectory mnist;
  write_idx_part(mnist.path(), "train", 3);
  write_file(mnist / "readme", "text");
  BOOST_TEST(open_mnist_source(mnist.path())->info().fates.all().size() == 1U);
  write_file(mnist / "t10k-images.idx", "x");
  check_fails(ExitStatus::bad_input, "t10k-images.idx looks like test data",
              [&] { return open_mnist_source(mnist.path()); });

  const TemporaryDirectory cifar;
  write_file(cifar / "train.bin", cifar_batch(2, "\x03\x42"));
  write_file(cifar / "Test.bin", cifar_batch(2, "\x03\x42"));
  check_fails(ExitStatus::bad_input, "Test.bin looks like test data",
              [&] { return open_cifar_source(cifar.path()); });
}

BOOST_AUTO_TEST_CASE(mnist_files_that_are_missing_or_do_not_match_are_refused) {
  const TemporaryDirectory folder;
  check_fails(ExitStatus::no_input, "train-images-idx3-ubyte",
              [&] { return open_mnist_source(folder.path()); });

  write_idx_part(folder.path(), "train", 3);
  write_idx_part(folder.path(), "t10k", 2);
  std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
  check_fails(ExitStatus::no_input, "t10k-labels-idx1-ubyte",
              [&] { return open_mnist_source(folder.path()); });

  write_file(folder / "t10k-labels-idx1-ubyte", idx_word(0x801) + idx_word(3) + "abc");
  check_fails(ExitStatus::bad_input, "holds 2 images, but",
              [&] { return open_mnist_source(folder.path()); });

  write_file(folder / "t10k-labels-idx1-ubyte", idx_word(0x802) + idx_word(1) + idx_word(2) + "ab");
  check_fails(ExitStatus::bad_input, "has 2 axes, expected 1",
              [&] { return open_mnist_source(folder.path()); });
}

BOOST_AUTO_TEST_CASE(cifar_10_reads_five_batches_a_test_batch_and_names) {
  const TemporaryDirectory folder;
  for (int i = 1; i <= 5; ++i) {
    write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"), cifar_batch(2, "\x03"));
  }
  write_file(folder / "test_batch.bin", cifar_batch(3, "\x09"));
  write_file(folder / "batches.meta.txt",
             "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");

  const auto source = open_cifar_source(folder.path());

  BOOST_TEST(source->samples(SourcePart::train) == 10);
  BOOST_TEST(source->samples(SourcePart::val) == 3);
  BOOST_TEST(source->info().class_names.at(9) == "truck");
  RawSample sample;
  (void)source->read(SourcePart::val, 2, sample);
  BOOST_TEST(sample.label == 9);
  BOOST_TEST(std::to_integer<int>(sample.bytes[100]) == 2);
}

BOOST_AUTO_TEST_CASE(cifar_100_takes_the_fine_labels) {
  const TemporaryDirectory folder;
  write_file(folder / "train.bin", cifar_batch(2, "\x03\x42"));

  const auto source = open_cifar_source(folder.path());

  RawSample sample;
  (void)source->read(SourcePart::train, 1, sample);
  BOOST_TEST(sample.label == 0x42);
  BOOST_TEST(source->info().classes == 100);
}

BOOST_AUTO_TEST_CASE(links_to_nothing_and_packed_test_data_are_not_missed) {
  const TemporaryDirectory folder;
  write_file(folder / "train.bin", cifar_batch(2, "\x03\x42"));
  std::filesystem::create_symlink("/not/mounted", folder / "test.bin");
  check_fails(ExitStatus::no_input, "a link to /not/mounted",
              [&] { return open_cifar_source(folder.path()); });
  std::filesystem::remove(folder / "test.bin");

  write_file(folder / "test.bin.gz", "x");
  check_fails(ExitStatus::bad_input, "test.bin.gz looks like test data",
              [&] { return open_cifar_source(folder.path()); });
  std::filesystem::remove(folder / "test.bin.gz");

  std::filesystem::create_symlink("/not/mounted", folder / "fine_label_names.txt");
  check_fails(ExitStatus::no_input, "a link to /not/mounted",
              [&] { return open_cifar_source(folder.path()); });
}

BOOST_AUTO_TEST_CASE(cifar_files_that_are_missing_or_wrong_are_refused) {
  const TemporaryDirectory folder;
  check_fails(ExitStatus::no_input, "data_batch_1.bin",
              [&] { return open_cifar_source(folder.path()); });

  write_file(folder / "data_batch_1.bin", cifar_batch(2, "\x03"));
  check_fails(ExitStatus::no_input, "data_batch_2.bin",
              [&] { return open_cifar_source(folder.path()); });

  write_file(folder / "data_batch_1.bin", cifar_batch(2, "\x03").substr(5));
  check_fails(ExitStatus::bad_input, "data_batch_1.bin",
              [&] { return open_cifar_source(folder.path()); });
}

BOOST_AUTO_TEST_CASE(folders_are_classes_in_the_order_of_their_names) {
  const TemporaryDirectory folder;
  for (const char* name : {"train/dog", "train/ant", "val/dog"}) make_folder(folder / name);
  const auto jpeg = flat_jpeg({.height = 30, .width = 60, .channels = 3}, 90);
  write_file(folder / "train/dog/b.png", flat_png(9, 40, 200));
  write_file(folder / "train/ant/a.JPEG", {jpeg.begin(), jpeg.end()});
  write_file(folder / "train/ant/readme.txt", "no image");
  write_file(folder / "val/dog/c.png", flat_png(16, 16, 7));

  const auto source = open_folder({.directory = folder.path(), .image_size = 16});

  BOOST_TEST(source->samples(SourcePart::train) == 2);
  BOOST_TEST(source->samples(SourcePart::val) == 1);
  const std::vector<std::string> classes{"ant", "dog"};
  BOOST_TEST(source->info().class_names == classes, boost::test_tools::per_element());
  RawSample sample;
  const auto check = [&](SourcePart part, std::int64_t index, std::int64_t label, int value) {
    (void)source->read(part, index, sample);
    BOOST_TEST(sample.label == label);
    BOOST_REQUIRE_EQUAL(sample.bytes.size(), 16u * 16 * 3);
    for (const std::byte pixel : sample.bytes) {
      BOOST_REQUIRE_LE(std::abs(std::to_integer<int>(pixel) - value), 2);  // JPEG is lossy
    }
  };
  check(SourcePart::train, 0, 0, 90);
  check(SourcePart::train, 1, 1, 200);
  check(SourcePart::val, 0, 1, 7);
}

BOOST_AUTO_TEST_CASE(the_first_bytes_of_a_file_determine_its_type) {
  const TemporaryDirectory folder;
  make_folder(folder / "cat");
  write_file(folder / "cat/a.jpg", flat_png(8, 8, 33));
  RawSample sample;

  const auto decoded = open_folder({.directory = folder.path(), .image_size = 8});
  (void)decoded->read(SourcePart::train, 0, sample);
  BOOST_TEST(std::to_integer<int>(sample.bytes[0]) == 33);

  write_file(folder / "cat/a.jpg", "GIF89a");
  const auto changed = open_folder({.directory = folder.path(), .image_size = 8});
  check_fails(ExitStatus::bad_input, "a GIF image (JPEG and PNG are read)",
              [&] { return changed->read(SourcePart::train, 0, sample); });
  check_fails(ExitStatus::no_input, "it changed meanwhile",
              [&] { return decoded->read(SourcePart::train, 0, sample); });
}

BOOST_AUTO_TEST_CASE(with_keep_encoded_what_is_no_rgb_or_grey_jpeg_becomes_one) {
  const TemporaryDirectory folder;
  make_folder(folder / "cat");
  std::map<std::string, std::string> files{{"0.JPEG", flat_png(8, 9, 33)}};
  for (const int channels : {1, 3, 4}) {
    const auto jpeg = flat_jpeg({.height = 8, .width = 9, .channels = channels}, 120);
    files[std::to_string(channels) + ".JPEG"] = {jpeg.begin(), jpeg.end()};
  }
  for (const auto& [name, bytes] : files) write_file(folder / ("cat/" + name), bytes);

  const auto source = open_folder({.directory = folder.path(), .keep_encoded = true});

  RawSample sample;
  Image image;
  std::int64_t index = 0;
  for (const auto& [name, bytes] : files) {
    const ReadResult read = source->read(SourcePart::train, index++, sample);
    const bool kept = name == "1.JPEG" || name == "3.JPEG";
    BOOST_TEST((read.conversion == Conversion::none) == kept, name);
    BOOST_TEST((std::string(reinterpret_cast<const char*>(sample.bytes.data()),
                            sample.bytes.size()) == bytes) == kept,
               name);
    BOOST_TEST(jpeg_components(sample.bytes) == (name == "1.JPEG" ? 1 : 3), name);
    decode_jpeg(sample.bytes, 3, image);
    BOOST_TEST((image.shape == ImageShape{.channels = 3, .height = 8, .width = 9}));
    // CMYK: inverted ink, 120 * 120 / 255.
    const int expected = name == "0.JPEG" ? 33 : name == "4.JPEG" ? 56 : 120;
    BOOST_TEST(std::abs(std::to_integer<int>(image.pixels[100]) - expected) <= 2, name);
    BOOST_TEST(std::abs(std::to_integer<int>(read.pixels[100]) - expected) <= 2, name);
  }
}

BOOST_AUTO_TEST_CASE(an_image_far_too_long_for_its_size_takes_no_memory) {
  const TemporaryDirectory folder;
  make_folder(folder / "cat");
  write_file(folder / "cat/a.png", flat_png(1, 60'000, 33));
  const auto source = open_folder({.directory = folder.path(), .image_size = 224});
  RawSample sample;

  check_fails(ExitStatus::bad_input, "1x60000",
              [&] { return source->read(SourcePart::train, 0, sample); });
}

BOOST_AUTO_TEST_CASE(folders_that_are_missing_empty_or_unknown_are_refused) {
  const TemporaryDirectory folder;
  const auto open = [&] { return open_folder({.directory = folder.path()}); };
  check_fails(ExitStatus::no_input, "holds no folders", open);
  check_fails(ExitStatus::no_input, "cannot list",
              [&] { return open_folder({.directory = folder / "nowhere"}); });

  make_folder(folder / "train/cat");
  check_fails(ExitStatus::bad_input, "train/cat is a class folder that holds no JPEG or PNG", open);

  write_file(folder / "train/cat/a.png", flat_png(8, 8, 33));
  make_folder(folder / "val/dog");
  write_file(folder / "val/dog/a.png", flat_png(8, 8, 33));
  check_fails(ExitStatus::bad_input, "val/dog is a class that the training part does not have",
              open);
}

BOOST_AUTO_TEST_CASE(images_outside_of_class_folders_are_refused) {
  const TemporaryDirectory folder;
  const auto open = [&] { return open_folder({.directory = folder.path()}); };
  make_folder(folder / "train/cat");
  write_file(folder / "train/cat/a.png", flat_png(8, 8, 33));
  make_folder(folder / "val");
  check_fails(ExitStatus::bad_input, "/val holds no class folders", open);

  // ImageNet's validation images are distributed in this form.
  write_file(folder / "val/ILSVRC2012_val_00000002.JPEG", "not read");
  write_file(folder / "val/ILSVRC2012_val_00000001.JPEG", "not read");
  write_file(folder / "val/labels.txt", "no image");
  check_fails(ExitStatus::bad_input,
              "/val holds 2 images outside of class folders, such as ILSVRC2012_val_00000001.JPEG",
              open);
  check_fails(ExitStatus::bad_input, "--val-labels", open);

  // It is not enough to move some of the images to class folders.
  make_folder(folder / "val/cat");
  std::filesystem::rename(folder / "val/ILSVRC2012_val_00000001.JPEG", folder / "val/cat/1.JPEG");
  check_fails(ExitStatus::bad_input, "/val holds 1 image outside of class folders", open);

  std::filesystem::rename(folder / "val/ILSVRC2012_val_00000002.JPEG", folder / "val/cat/2.JPEG");
  BOOST_TEST(open()->samples(SourcePart::val) == 2);
  write_file(folder / "train/b.png", flat_png(8, 8, 33));
  check_fails(ExitStatus::bad_input, "/train holds 1 image outside of class folders", open);
}
