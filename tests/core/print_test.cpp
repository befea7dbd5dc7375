#include "lockstep/core/print.hpp"

#include "lockstep/core/csv.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace lockstep;

namespace {

template <typename... Values>
std::string printed(const char* format, const Values&... values) {
  return detail::format_values(format, detail::printable(values)...);
}

}  // namespace

BOOST_AUTO_TEST_CASE(texts_are_escaped_in_the_format_and_numbers_are_not) {
  const std::string name = "a\x1b[31m\nb\u202e";

  BOOST_TEST(printed("{}|{}|{:.1f}|{:>3}", name, name.c_str(), 1.25, 7) ==
             "a\\x1b[31m\\x0ab\\xe2\\x80\\xae|a\\x1b[31m\\x0ab\\xe2\\x80\\xae|1.2|  7");
  BOOST_TEST(printed("{}", Lines{"a\tb\n\x1b[m"}) == "a\tb\n\\x1b[m");
}

BOOST_AUTO_TEST_CASE(a_formula_is_text_in_a_spreadsheet_and_comes_back) {
  for (const char* text : {"=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "'=1", "''@x",
                           "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x", "'\uff1d1"}) {
    const std::string field = csv_field(text);
    BOOST_TEST(field == std::string("'") + text);
    BOOST_TEST(csv_text(field) == text);
  }
  BOOST_TEST(csv_field("=a,\"b\"") == "\"'=a,\"\"b\"\"\"");
  BOOST_TEST(csv_field("\t=1") == "\\x09=1");
  BOOST_TEST(csv_field("\r=1") == "\\x0d=1");
}

BOOST_AUTO_TEST_CASE(numbers_and_usual_names_stay_as_they_are_in_csv) {
  for (const char* text : {"-1", "-0.5e-7", "-inf", "12", "cat", "'tis", "", "a=b", "x-y", "'"}) {
    BOOST_TEST(csv_field(text) == text);
    BOOST_TEST(csv_text(text) == text);
  }
  BOOST_TEST(csv_field("a,b") == "\"a,b\"");
}
