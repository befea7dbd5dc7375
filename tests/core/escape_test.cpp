#include <boost/test/unit_test.hpp>

#include "lockstep/core/escape.hpp"

using namespace lockstep;

BOOST_AUTO_TEST_CASE(text_that_could_control_a_terminal_is_escaped) {
  BOOST_TEST(escape_controls("a\tb\n\x1b]0;x\x07\r\x7f") == "a\tb\n\\x1b]0;x\\x07\\x0d\\x7f");
  BOOST_TEST(escape_controls("\u009b5m") == "\\xc2\\x9b5m");
  BOOST_TEST(escape_controls("\u202eabc\u2066\u200f") ==
             "\\xe2\\x80\\xaeabc\\xe2\\x81\\xa6\\xe2\\x80\\x8f");
  BOOST_TEST(escape_controls("é猫\U0001F600\u00a0") == "é猫\U0001F600\u00a0");
}

BOOST_AUTO_TEST_CASE(what_cannot_be_seen_is_escaped) {
  BOOST_TEST(escape_controls("\ufeffmodel") == "\\xef\\xbb\\xbfmodel");
  BOOST_TEST(escape_controls("a\u200bb\u2060\u00ad") ==
             "a\\xe2\\x80\\x8bb\\xe2\\x81\\xa0\\xc2\\xad");
  BOOST_TEST(escape_controls("क\u094d\u200dष") == "क\u094d\u200dष");
}

BOOST_AUTO_TEST_CASE(a_line_keeps_no_line_breaks_and_tabs) {
  BOOST_TEST(escape_line("two\nlines\t\r\u2028") == "two\\x0alines\\x09\\x0d\\xe2\\x80\\xa8");
  BOOST_TEST(escape_line("é\x1b[31m") == "é\\x1b[31m");
  BOOST_TEST(escape_line("") == "");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_are_escaped) {
  BOOST_TEST(escape_controls("\xff\xc3") == "\\xff\\xc3");
  BOOST_TEST(escape_controls("\x9b") == "\\x9b");
  BOOST_TEST(escape_controls("\xe7\x8c!") == "\\xe7\\x8c!");                  // cut off
  BOOST_TEST(escape_controls("\xc1\x81") == "\\xc1\\x81");                    // too long
  BOOST_TEST(escape_controls("\xe0\x81\x81") == "\\xe0\\x81\\x81");           // too long
  BOOST_TEST(escape_controls("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  BOOST_TEST(escape_controls("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

BOOST_AUTO_TEST_CASE(json_means_the_same_without_characters_that_deceive) {
  BOOST_TEST(escape_json("[\"\u202ea\u2066\u200b\u0085\u2028\u061c\x7f\"]") ==
             "[\"\\u202ea\\u2066\\u200b\\u0085\\u2028\\u061c\\u007f\"]");
  BOOST_TEST(escape_json("{\"\\u202e \u00e9\u4e2d\": \"\U0001f600\"}") ==
             "{\"\\u202e \u00e9\u4e2d\": \"\U0001f600\"}");
}
