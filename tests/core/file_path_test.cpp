#include "lockstep/core/file_path.hpp"
#include "../io/temporary_directory.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/text_file.hpp"

#include <fcntl.h>

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;
using namespace lockstep;
using lockstep::test::TemporaryDirectory;
using lockstep::test::write_file;

namespace {

/// `run` with `inside/file`, beside `outside` with a file.
struct Setting {
  Setting() {
    fs::create_directories(directory / "run/inside");
    fs::create_directory(directory / "outside");
    write_file(directory / "run/inside/file", "mine");
    write_file(directory / "outside/file", "secret");
  }
  TemporaryDirectory directory;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(files_of_an_open_directory_are_read, Setting) {
  const OpenDirectory run(directory / "run");

  BOOST_TEST(read_text_file(run / "inside/file") == "mine");
  BOOST_TEST((run / "inside" / "file").text() == directory / "run/inside/file");
  BOOST_TEST(!(run / "absent").exists());
}

BOOST_FIXTURE_TEST_CASE(no_link_leads_out_of_an_open_directory, Setting) {
  fs::create_symlink("../outside/file", directory / "run/file");
  fs::create_symlink(directory / "outside", directory / "run/folder");
  fs::create_symlink("../outside/new", directory / "run/new");
  const OpenDirectory run(directory / "run");

  for (const char* name : {"file", "folder/file", "../outside/file", "inside/../../outside/file"}) {
    BOOST_TEST(!(run / name).open(O_RDONLY));
    BOOST_CHECK_THROW(static_cast<void>(read_text_file(run / name)), Error);
  }
  BOOST_TEST(!(run / "new").open(O_WRONLY | O_CREAT, 0666));
  BOOST_TEST(!(run / "folder/new").open(O_WRONLY | O_CREAT, 0666));
  BOOST_TEST(!(run / "folder/new").make_directory());
  BOOST_TEST(!(run / "folder/file").remove());
  BOOST_CHECK_THROW(static_cast<void>(entries_in(run / "folder")), Error);
  BOOST_TEST(!fs::exists(directory / "outside/new"));
  BOOST_TEST(read_text_file(directory / "run/file") == "secret");  // a user's path
}

BOOST_FIXTURE_TEST_CASE(a_directory_that_is_replaced_by_a_link_stays_open, Setting) {
  const OpenDirectory run(directory / "run");
  const FilePath file = run / "inside/file";
  BOOST_TEST(run.is_current());

  fs::rename(directory / "run", directory / "moved");
  fs::create_symlink("outside", directory / "run");

  BOOST_TEST(!run.is_current());
  BOOST_TEST(read_text_file(file) == "mine");
}

BOOST_FIXTURE_TEST_CASE(a_link_names_only_a_file_beside_it, Setting) {
  fs::create_symlink("step-00000001.h5", directory / "run/latest");
  fs::create_symlink("../outside/step-00000001.h5", directory / "run/best");
  const OpenDirectory run(directory / "run");

  BOOST_TEST(name_behind(run / "latest") == "step-00000001.h5");
  BOOST_TEST(name_behind(run / "best").empty());
}

BOOST_AUTO_TEST_CASE(files_of_a_directory_that_cannot_be_opened_have_its_error) {
  const TemporaryDirectory directory;

  const Descriptor file = (OpenDirectory(directory / "absent") / "file").open(O_RDONLY);

  BOOST_TEST(!file);
  BOOST_TEST(errno == ENOENT);
}
