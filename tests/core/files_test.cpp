#include "../io/temporary_directory.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text_file.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using lockstep::test::TemporaryDirectory;
using lockstep::test::write_file;
using namespace std::string_view_literals;

namespace {

std::string read(const TemporaryDirectory& directory, std::string_view text) {
  const std::string path = directory / "text";
  write_file(path, std::string(text));
  return read_text_file(path);
}

/// Checks status and a part of the message.
void check_error(const std::function<void()>& call, ExitStatus status, const std::string& part) {
  BOOST_CHECK_EXCEPTION(call(), Error, [&](const Error& error) {
    BOOST_TEST_MESSAGE(error.what());
    return error.status() == status && std::string(error.what()).find(part) != std::string::npos;
  });
}

/// A directory, a FIFO, a socket, a device and a link to a FIFO, with what messages call them.
std::vector<std::pair<std::string, std::string>> special_files(const TemporaryDirectory& in) {
  fs::create_directory(in / "directory");
  BOOST_REQUIRE(::mkfifo((in / "fifo").c_str(), 0600) == 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = in / "s";
  BOOST_REQUIRE(name.size() < sizeof address.sun_path);
  name.copy(address.sun_path, name.size());
  BOOST_REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::close(socket);
  fs::create_symlink("fifo", in / "link");
  return {{in / "directory", "a directory"},
          {in / "fifo", "a FIFO"},
          {in / "s", "a socket"},
          {"/dev/zero", "a device"},
          {in / "link", "a FIFO"}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(special_files_are_refused_as_inputs_before_they_are_opened) {
  const TemporaryDirectory directory;

  for (const auto& [path, kind] : special_files(directory)) {
    check_error([&, at = path] { static_cast<void>(open_input(at)); }, ExitStatus::bad_input,
                path + " is " + kind);
    check_error([&, at = path] { static_cast<void>(read_text_file(at)); }, ExitStatus::bad_input,
                path + " is " + kind);
  }
}

BOOST_AUTO_TEST_CASE(a_dangling_link_is_named_with_its_target) {
  const TemporaryDirectory directory;
  fs::create_symlink("/not/mounted", directory / "link");

  check_error([&] { static_cast<void>(open_input(directory / "link")); }, ExitStatus::no_input,
              "a link to /not/mounted: No such file");
}

BOOST_AUTO_TEST_CASE(special_files_and_links_are_no_outputs) {
  const TemporaryDirectory directory;
  auto refused = special_files(directory);
  refused.back().second = "a link";

  for (const auto& [path, kind] : refused) {
    check_error([&, at = path] { require_output("--output", at, Existing::replace); },
                ExitStatus::cannot_write, "it is " + kind);
  }
}

BOOST_AUTO_TEST_CASE(a_text_that_stands_for_a_link_is_no_output) {
  const TemporaryDirectory directory;
  write_file(directory / "latest", "step-00000008.h5\n");

  check_error([&] { require_output("--output", directory / "latest", Existing::replace); },
              ExitStatus::cannot_write, "it is a link");
}

BOOST_AUTO_TEST_CASE(an_output_replaces_a_file_only_on_request) {
  const TemporaryDirectory directory;
  write_file(directory / "old", "kept");

  BOOST_CHECK_NO_THROW(require_output("--output", directory / "new", Existing::refuse));
  BOOST_CHECK_NO_THROW(require_output("--output", directory / "old", Existing::replace));
  check_error([&] { require_output("--output", directory / "old", Existing::refuse); },
              ExitStatus::usage, "exists already");
  check_error([&] { require_output("--output", directory / "absent/new", Existing::replace); },
              ExitStatus::cannot_write, "create its directory");
  check_error([&] { require_output("--output", directory / "old/new", Existing::replace); },
              ExitStatus::cannot_write, "old/new");
}

BOOST_AUTO_TEST_CASE(text_has_one_form_whatever_wrote_it) {
  const TemporaryDirectory directory;

  BOOST_TEST(read(directory, "") == "");
  BOOST_TEST(read(directory, "a\nb") == "a\nb");
  BOOST_TEST(read(directory,
                  "\xEF\xBB\xBF"
                  "a\r\n\r\nb\r\n") == "a\n\nb\n");
  BOOST_TEST(read(directory, "a\rb\r") == "a\rb\r");
  const std::string large(100'000, 'x');
  BOOST_TEST(read(directory, large) == large);
}

BOOST_AUTO_TEST_CASE(a_file_without_a_size_is_read_to_its_end) {
  BOOST_TEST(read_text_file("/proc/self/status").find("Name:") == 0U);
}

BOOST_AUTO_TEST_CASE(other_encodings_and_binary_files_are_named) {
  const TemporaryDirectory directory;

  check_error(
      [&] {
        read(directory,
             "\xFF\xFE"
             "a\0"sv);
      },
      ExitStatus::bad_input, "UTF-16");
  check_error([&] { read(directory, "\xFE\xFF\0a"sv); }, ExitStatus::bad_input, "UTF-16");
  check_error([&] { read(directory, "\xFF\xFE\0\0a\0\0\0"sv); }, ExitStatus::bad_input, "UTF-32");
  check_error([&] { read(directory, "ab\0c"sv); }, ExitStatus::bad_input, "byte 2 is zero");
}

BOOST_AUTO_TEST_CASE(listings_leave_hidden_and_temporary_names_out) {
  const TemporaryDirectory directory;
  for (const char* name :
       {"b", "a", "._a", ".nfs0001", "a~", ".a.swp", "a.swp", "__MACOSX", "_a"}) {
    write_file(directory / name, "");
  }
  fs::create_symlink("absent", directory / "dangling");
  fs::create_directory(directory / "folder");

  const std::vector<std::string> names = names_in(directory.path());
  const std::vector<DirectoryEntry> entries = entries_in(directory.path());

  const std::vector<std::string> expected{"_a", "a", "b", "dangling", "folder"};
  BOOST_TEST(names == expected, boost::test_tools::per_element());
  BOOST_REQUIRE(entries.size() == 11U);
  for (const DirectoryEntry& entry : entries) {
    BOOST_TEST(entry.is_directory() == (entry.name == "folder"));
    BOOST_TEST((entry.error != 0) == (entry.name == "dangling"));
  }
  check_error([&] { static_cast<void>(names_in(directory / "a")); }, ExitStatus::bad_input,
              "is a file (a directory is expected)");
}

BOOST_AUTO_TEST_CASE(a_line_without_end_is_refused_before_it_fills_the_memory) {
  const TemporaryDirectory directory;
  write_file(directory / "lines", "first\nsecond\n");
  fs::resize_file(directory / "lines", std::uintmax_t{1} << 40);
  InputStream file = open_input_stream(directory / "lines");
  std::string line;

  std::getline(file, line);
  BOOST_TEST(line == "first");
  std::getline(file, line);
  BOOST_TEST(line == "second");
  check_error([&] { std::getline(file, line); }, ExitStatus::bad_input, "has a line of");
}
