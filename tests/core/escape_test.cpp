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

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_are_escaped) {
  BOOST_TEST(escape_controls("\xff\xc3") == "\\xff\\xc3");
  BOOST_TEST(escape_controls("\x9b") == "\\x9b");
  BOOST_TEST(escape_controls("\xe7\x8c!") == "\\xe7\\x8c!");                  // cut off
  BOOST_TEST(escape_controls("\xc1\x81") == "\\xc1\\x81");                    // too long
  BOOST_TEST(escape_controls("\xe0\x81\x81") == "\\xe0\\x81\\x81");           // too long
  BOOST_TEST(escape_controls("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  BOOST_TEST(escape_controls("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}
