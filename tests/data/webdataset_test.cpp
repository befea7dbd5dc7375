#include "data/image_list.hpp"

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

ListedEntries entries_of(const std::vector<Member>& members, OnBad on_bad = OnBad::stop) {
  const TemporaryDirectory folder;
  write_file(folder / "a.tar", archive_of(members));
  ListedEntries listed = list_samples(ArchiveFile(folder / "a.tar"), 7, on_bad);
  if (on_bad == OnBad::stop) listed.fates.require_all_used();
  return listed;
}

ImageList samples_in(const std::vector<Member>& members) {
  return entries_of(members).images;
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

BOOST_AUTO_TEST_CASE(a_key_ends_at_the_last_dot) {
  const ImageList list = samples_in({{"photo.2021-7.jpg", "x"},
                                     {"photo.2021-7.cls", "1"},
                                     {"photo.2021-7.caption.txt", "other data"},
                                     {"photo.2021-8.cls", "2"},
                                     {"photo.2021-8.jpeg", "x"},
                                     {"v1.0/a.b.c.png", "x"},
                                     {"v1.0/a.b.c.json", "{\"label\": 3}"}});

  BOOST_REQUIRE_EQUAL(list.size(), 3);
  BOOST_TEST(list.name(1) == "photo.2021-8.jpeg");
  BOOST_TEST(list[0].label == 1);
  BOOST_TEST(list[1].label == 2);
  BOOST_TEST(list[2].label == 3);
}

BOOST_AUTO_TEST_CASE(each_member_has_one_fate) {
  const std::string gif = "GIF89a";
  const std::vector<Member> members{{"a.jpg", "x"},
                                    {"a.cls", "1"},
                                    {"a.txt", "text"},
                                    {"b.gif", gif},
                                    {"b.cls", "1"},
                                    {"c.jpe", "\xFF\xD8\xFF"},
                                    {"c.json", "{\"cls\": 2}"},
                                    {"README", "text"},
                                    {"d.txt", "text"},
                                    {"e.jpg", "x"},
                                    {"f.cls", "1"},
                                    {"__meta__.json", "{}"},
                                    {".g.jpg", "x"}};

  const ListedEntries skipped = entries_of(members, OnBad::skip);

  // The image of b is listed: it is refused when it is decoded.
  BOOST_TEST(skipped.images.size() == 3);
  const auto all = skipped.fates.all();
  BOOST_TEST(all.at("label of a sample").entries == 3);
  BOOST_TEST(all.at("other data of a sample").entries == 1);
  BOOST_TEST(all.at("a member that belongs to no sample").entries == 2);
  BOOST_TEST(all.at("metadata, by its name").entries == 1);
  std::int64_t others = 0;
  for (const auto& [reason, of] : all) others += of.entries;
  BOOST_TEST(static_cast<std::size_t>(skipped.images.size() + others) == members.size());
  BOOST_TEST(skipped.fates.unused().size() == 4U);
  check_refused({{"a.jpg", "x"}, {"a.cls", "1"}, {"b.gif", gif}, {"b.cls", "0"}},
                "b.gif is a GIF image");
  check_refused({{"a.jpg", "x"}, {"a.cls", "1"}, {"b.txt", "x"}}, "b.txt is a member that belongs");
  check_refused({{"0.mask.png", "x"}, {"0.jpg", "x"}, {"0.cls", "1"}},
                "0.mask.png is an image without");
}

BOOST_AUTO_TEST_CASE(two_labels_that_differ_are_refused) {
  check_refused({{"a.jpg", "x"}, {"a.cls", "0"}, {"a.json", "{\"label\": 1}"}},
                "a.cls is 0, but a.json has 1");
  check_refused({{"a.jpg", "x"}, {"a.json", "{\"label\": 1, \"cls\": 2}"}},
                "two different numbers");
  BOOST_TEST(samples_in({{"a.jpg", "x"}, {"a.cls", "1"}, {"a.json", "{\"label\": 1}"}}).size() ==
             1);
}

BOOST_AUTO_TEST_CASE(hidden_folders_are_left_out) {
  const ListedEntries found = entries_of({{"./a/b.jpg", "x"},
                                          {"./a/b.cls", "1"},
                                          {".trash/c.jpg", "x"},
                                          {".trash/c.cls", "1"},
                                          {"__MACOSX/d.jpg", "x"}});

  BOOST_TEST(found.images.size() == 1);
  BOOST_TEST(found.fates.all().at("hidden or temporary, by its name").entries == 3);
}

BOOST_AUTO_TEST_CASE(samples_without_image_or_label_are_refused) {
  check_refused({{"a.jpg", "x"}, {"b.cls", "1"}}, "a.jpg is an image without a label");
  check_refused({{"a.cls", "1"}, {"b.jpg", "x"}}, "a.cls is a label without an image");
  check_refused({{"a.jpg", "x"}, {"a.cls", "1"}, {"b.jpg", "x"}}, "b.jpg is an image without");
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
    const ImageListing listing = list_webdataset(folder.path(), "", OnBad::stop, *alone);
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
  fails({"train-0.tar", "more-0.tar"}, "1 others, such as more-0.tar");
  fails({"train-0.tar", "train-1.tar.gz"}, "train-1.tar.gz is a compressed archive");
  fails({"trainset-0.tar", "testset-0.tar"}, "look like parts");
  fails({"imagenetTrain-0.tar", "imagenetVal-0.tar"}, "look like parts");
  fails({"train-0.tar", "val-1.txz"}, "val-1.txz is a compressed archive");
  BOOST_TEST((list({"train-cars-train-0.tar", "train-cars-val-0.tar"}) ==
              std::pair<std::int64_t, std::int64_t>(1, 1)));
  fails({"train/0.tar", "extra/0.tar"}, "extra is a folder");
  fails({"train/0.tar", "1.tar"}, "1.tar is an archive beside the parts");
  fails({"train/0.tar", "train/more/0.tar"}, "train/more is a folder");
  // One evaluation part becomes val, by preference.
  BOOST_TEST((list({"train-0.tar", "test-0.tar"}) == std::pair<std::int64_t, std::int64_t>(1, 1)));
  BOOST_TEST((list({"train-0.tar", "test-0.tar", "test-1.tar", "valid-0.tar"}) ==
              std::pair<std::int64_t, std::int64_t>(1, 1)));
  BOOST_TEST((list({"Train/0.tar", "Testing/0.tar", "Testing/1.tar"}) ==
              std::pair<std::int64_t, std::int64_t>(1, 2)));
}
