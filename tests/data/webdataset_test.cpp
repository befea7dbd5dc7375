#include "data/webdataset_listing.hpp"

#include "data/archive_file.hpp"
#include "data/shard_fixture.hpp"
#include "data/tar_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Member {
  std::string name;
  std::string bytes;
};

std::string archive_of(const std::vector<Member>& members) {
  std::string text;
  for (const Member& member : members) {
    text += tar_entry({.name = member.name, .bytes = member.bytes});
  }
  return text + tar_end();
}

ImageList samples_in(const std::vector<Member>& members) {
  const TemporaryDirectory folder;
  write_file(folder / "a.tar", archive_of(members));
  return list_samples(ArchiveFile(folder / "a.tar"), 7);
}

void check_refused(const std::vector<Member>& members, const std::string& reason) {
  const Failure failure = failure_of([&] { (void)samples_in(members); });
  BOOST_TEST(static_cast<int>(failure.status) == 65, reason);
  BOOST_TEST(failure.says(reason), failure.text);
  BOOST_TEST(failure.says("a.tar"), failure.text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_sample_is_an_image_with_a_label_of_the_same_name) {
  const ImageList list = samples_in({{"__index__.json", "{}"},
                                     {"a/1.jpg", "JPEG"},
                                     {"a/1.cls", "3\n"},
                                     {"a/1.json", "no JSON"},
                                     {"a/._1.jpg", "of macOS"},
                                     {"b/1.json", "{\"class\": 4, \"label\": \"four\"}"},
                                     {"b/1.PNG", "PNG file"},
                                     {"b/1.txt", "text"},
                                     {"c.txt", "no sample"},
                                     {"d.jpeg", ""},
                                     {"d.json", "{\"cls\": 0}"}});

  BOOST_REQUIRE_EQUAL(list.size(), 3);
  BOOST_TEST(list.name(0) == "a/1.jpg");
  BOOST_TEST(list.name(1) == "b/1.PNG");
  BOOST_TEST(list.name(2) == "d.jpeg");
  BOOST_TEST(list[0].label == 3);
  BOOST_TEST(list[1].label == 4);
  BOOST_TEST(list[2].label == 0);
  BOOST_TEST(list[1].bytes == 8u);
  BOOST_TEST(list[1].container == 7);
}

BOOST_AUTO_TEST_CASE(samples_without_image_or_label_are_refused) {
  check_refused({{"a.jpg", "x"}, {"b.cls", "1"}}, "sample a has no label");
  check_refused({{"a.cls", "1"}, {"b.jpg", "x"}}, "sample a has no image");
  check_refused({{"a.jpg", "x"}, {"a.cls", "1"}, {"b.jpg", "x"}}, "sample b has no label");
  check_refused({{"a.jpg", "x"}, {"a.png", "x"}, {"a.cls", "1"}}, "a.jpg and a.png");
  for (const char* label : {"", "cat", "1 2", "-1", "1.5", "16777216"}) {
    check_refused({{"a.jpg", "x"}, {"a.cls", label}}, "a.cls holds no label");
  }
  for (const char* json : {"", "[1]", "{\"name\": 1}", "{\"label\": \"1\"}", "{\"label\": -1}",
                           "{\"label\": 18446744073709551615}", "{\"label\": 1"}) {
    check_refused({{"a.jpg", "x"}, {"a.json", json}}, "a.json holds no label");
  }
}

BOOST_AUTO_TEST_CASE(the_names_of_archives_say_to_which_part_they_belong) {
  const std::string one = archive_of({{"a.jpg", "x"}, {"a.cls", "4"}});
  const auto list = [&](const std::vector<std::string>& names) {
    const TemporaryDirectory folder;
    for (const std::string& name : names) {
      std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
      write_file(folder / name, one);
    }
    const auto alone = make_self_communicator();
    const ImageListing listing = list_webdataset(folder.path(), "", *alone);
    BOOST_TEST(listing.classes == 5);
    BOOST_TEST(listing.class_names.empty());
    return std::pair(listing.train.size(), listing.val.size());
  };

  BOOST_TEST((list({"000.tar", "001.tar"}) == std::pair<std::int64_t, std::int64_t>(2, 0)));
  BOOST_TEST((list({"train/000.tar"}) == std::pair<std::int64_t, std::int64_t>(1, 0)));
  BOOST_TEST((list({"train/000.tar", "train/1.tar", "val/0.tar"}) ==
              std::pair<std::int64_t, std::int64_t>(2, 1)));
  BOOST_TEST(
      (list({"imagenet1k-train-0000.tar", "imagenet1k-validation-00.tar",
             "imagenet1k-validation-01.tar"}) == std::pair<std::int64_t, std::int64_t>(1, 2)));
  const auto fails = [&](const std::vector<std::string>& names, const std::string& reason) {
    const Failure failure = failure_of([&] { (void)list(names); });
    BOOST_TEST(failure.says(reason), failure.text);
  };
  fails({"readme.txt"}, "holds no .tar file");
  fails({"train-0.tar.gz"}, "train-0.tar.gz; decompress it");
  fails({"val-0.tar"}, "0 archives of train and 1 of val");
  fails({"train-0.tar", "test-0.tar"}, "1 others, such as test-0.tar");
}
