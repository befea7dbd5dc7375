#include "lockstep/core/file_link.hpp"

#include "../io/temporary_directory.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <functional>
#include <string>

namespace fs = std::filesystem;
using namespace lockstep;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;
using lockstep::test::write_file;

namespace {

void check_error(const std::function<void()>& call, ExitStatus status, const std::string& part) {
  BOOST_CHECK_EXCEPTION(call(), Error, [&](const Error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return error.status() == status && std::string(error.what()).find(part) != std::string::npos;
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_link_and_a_text_file_name_the_same_file) {
  const TemporaryDirectory directory;
  fs::create_symlink("step-00000001.h5", directory / "link");
  write_file(directory / "text", file_link_text("step-00000001.h5"));
  write_file(directory / "windows", "step-00000001.h5\r\n");
  write_file(directory / "open", "step-00000001.h5");

  for (const char* name : {"link", "text", "windows", "open"}) {
    BOOST_TEST(name_behind(directory / name) == "step-00000001.h5");
  }
  BOOST_TEST(follow_file_link(directory / "text").text() == directory / "step-00000001.h5");
  BOOST_TEST(follow_file_link(directory / "link").text() == directory / "link");
}

BOOST_AUTO_TEST_CASE(what_a_text_file_names_is_no_link) {
  const TemporaryDirectory directory;
  write_file(directory / "outside", "secret");
  fs::create_directory(directory / "checkpoints");
  fs::create_symlink("../outside", directory / "checkpoints/step-00000001.h5");
  write_file(directory / "checkpoints/best", file_link_text("step-00000001.h5"));

  BOOST_TEST(!follow_file_link(directory / "checkpoints/best").open(O_RDONLY));
  fs::remove(directory / "checkpoints/step-00000001.h5");
  write_file(directory / "checkpoints/step-00000001.h5", "weights");
  BOOST_TEST(!!follow_file_link(directory / "checkpoints/best").open(O_RDONLY));
}

BOOST_AUTO_TEST_CASE(other_files_are_no_links) {
  const TemporaryDirectory directory;
  const std::string name = directory / "latest";
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("step-1.txt\n"),
        std::string("../step-1.h5\n"), std::string("/etc/step-1.h5\n"),
        std::string("step-1.h5\nstep-2.h5\n"), std::string("\x89HDF\r\n\x1a\n.h5"),
        std::string(300, 'a') + ".h5\n"}) {
    write_file(name, text);
    BOOST_TEST(name_behind(name).empty());
    BOOST_TEST(follow_file_link(name).text() == name);
  }
  fs::remove(name);
  BOOST_REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
  BOOST_TEST(name_behind(name).empty());
  BOOST_TEST(follow_file_link(directory / "absent").text() == directory / "absent");
}

BOOST_AUTO_TEST_CASE(a_file_written_in_place_may_be_absent_but_nothing_else) {
  const TemporaryDirectory directory;
  write_file(directory / "old", "kept");
  fs::create_symlink("old", directory / "link");
  fs::create_directory(directory / "directory");
  BOOST_REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);

  for (const char* name : {"old", "link", "new"}) {
    BOOST_TEST(static_cast<bool>(open_output(directory / name, O_WRONLY | O_APPEND, "")));
  }
  BOOST_TEST(read_file(directory / "old") == "kept");
  for (const auto& [path, kind] : {std::pair(directory / "directory", "it is a directory"),
                                   std::pair(directory / "fifo", "it is a FIFO"),
                                   std::pair(std::string("/dev/zero"), "it is a device")}) {
    check_error([&, at = path] { static_cast<void>(open_output(at, O_WRONLY, "")); },
                ExitStatus::cannot_write, kind);
  }
}

BOOST_AUTO_TEST_CASE(what_is_there_in_place_of_a_directory_is_named) {
  const TemporaryDirectory directory;
  write_file(directory / "file", "");
  BOOST_REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);

  for (const auto& [name, kind] : {std::pair("file", "a file"), std::pair("fifo", "a FIFO")}) {
    const std::string path = directory / name;
    check_error([&] { static_cast<void>(names_in(path)); }, ExitStatus::bad_input,
                path + " is " + kind);
    check_error([&] { make_directories(path, ""); }, ExitStatus::cannot_write,
                std::string("it is ") + kind);
    check_error([&] { make_directories(path + "/new/one", ""); }, ExitStatus::cannot_write,
                path + " is " + kind);
  }
  make_directories(directory / "new/one", "");
  make_directories(directory / "new/one", "");
  BOOST_TEST(fs::is_directory(directory / "new/one"));
  check_error([&] { static_cast<void>(names_in(directory / "absent")); }, ExitStatus::no_input,
              "No such file");
}
