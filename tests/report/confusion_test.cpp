#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/report/confusion.hpp"

#include <string>

using namespace lockstep;
using report::Confusion;
using test::TemporaryDirectory;
using test::write_file;

namespace {

Confusion read(const std::string& text, std::size_t most = 100) {
  const TemporaryDirectory directory;
  write_file(directory / "confusion.csv", text);
  return report::read_confusion(directory / "confusion.csv", most);
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_that_begin_like_a_formula_come_back) {
  const Confusion confusion = read("true class,'=1+1,-5\n'=1+1,3,1\n-5,0,4\n");

  BOOST_REQUIRE_EQUAL(confusion.classes.size(), 2u);
  BOOST_TEST(confusion.classes[0] == "=1+1");
  BOOST_TEST(confusion.classes[1] == "-5");
}

BOOST_AUTO_TEST_CASE(a_row_of_more_columns_than_a_matrix_of_its_bytes_is_refused) {
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(read(std::string(1'000'000, ',') + "\n")), Error, [](const Error& error) {
        return std::string(error.what()).find("no row of 1 columns") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(counts_are_those_of_the_file) {
  const Confusion confusion =
      read("true class,\"a, \"\"b\"\"\nc\",d\n\"a, \"\"b\"\"\nc\",3,1\nd,0,5\n");

  BOOST_TEST(confusion.classes[0] == "a, \"b\"\nc");
  BOOST_TEST(confusion.samples[0] == 4);
  BOOST_TEST(confusion.hits[1] == 5);
  BOOST_TEST_REQUIRE(confusion.errors.size() == 1U);
  BOOST_TEST(confusion.errors[0].predicted == 1);
}

BOOST_AUTO_TEST_CASE(the_most_frequent_errors_are_kept) {
  const Confusion confusion = read("true class,a,b,c\na,1,7,2\nb,3,1,9\nc,4,5,1\n", 2);

  BOOST_TEST(confusion.errors.size() == 2U);
  BOOST_TEST(confusion.errors[0].count + confusion.errors[1].count == 16);
  BOOST_TEST(confusion.dropped == 14);
}

BOOST_AUTO_TEST_CASE(rows_in_another_order_than_the_columns_are_refused) {
  BOOST_CHECK_EXCEPTION(
      read("true class,cat,dog\ndog,0,5\ncat,3,0\n"), Error, [](const Error& error) {
        return error.status() == ExitStatus::bad_input &&
               std::string(error.what()).find("row 2 is of another class than column 2") !=
                   std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(other_files_are_refused) {
  for (const char* text :
       {"", "true class\n", "true class,a,b\na,1,2\n", "true class,a\na,x\n",
        "true class,a\na,-1\n", "true class,a,b\na,1\nb,1\n", "\"true class,a"}) {
    BOOST_CHECK_THROW(read(text), Error);
  }
}
