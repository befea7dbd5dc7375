#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace lockstep;

namespace {

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

/// "LINE:BYTE REASON"; empty if the text is good.
std::string problem_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    static_cast<void>(require_json(text, "x", "fix it", limits));
    return "";
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == 65);
    return error.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_of_each_kind_are_read) {
  const auto json = parse_json(R"( {"a":[1,-2,2.5e-3,true,false,null,"x"],"b":{},"c":[]} )");

  BOOST_REQUIRE(json.has_value());
  BOOST_TEST(json->dump() == R"({"a":[1,-2,0.0025,true,false,null,"x"],"b":{},"c":[]})");
}

BOOST_AUTO_TEST_CASE(integers_are_exact_and_larger_ones_the_nearest_double) {
  BOOST_TEST(parse_json("18446744073709551615")->get<std::uint64_t>() == ~std::uint64_t{0});
  BOOST_TEST(parse_json("-9223372036854775808")->get<std::int64_t>() ==
             std::numeric_limits<std::int64_t>::min());
  BOOST_TEST(parse_json("18446744073709551616")->is_number_float());
  BOOST_TEST(parse_json("18446744073709551616")->get<double>() == 0x1p64);
}

BOOST_AUTO_TEST_CASE(a_number_that_a_double_cannot_hold_is_refused) {
  BOOST_TEST(problem_of("[1e308]") == "");
  BOOST_TEST(problem_of("[1e309]") ==
             "x is not JSON (a number too large for a double; line 1, byte 2); fix it");
  BOOST_TEST(parse_json("1e-999")->get<double>() == 0);
  BOOST_TEST(parse_json("4.9e-324")->get<double>() > 0);
}

BOOST_AUTO_TEST_CASE(escapes_are_replaced) {
  BOOST_TEST(
      parse_json(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00!")")->get<std::string>() ==
      "\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001F600!");
}

BOOST_AUTO_TEST_CASE(of_members_with_the_same_name_the_last_one_counts) {
  BOOST_TEST(parse_json(R"({"a":1,"b":2,"\u0061":3})")->dump() == R"({"a":3,"b":2})");
}

BOOST_AUTO_TEST_CASE(what_is_no_json_is_refused_with_its_place) {
  BOOST_TEST(problem_of("{\"a\": 1,\n \"b\" 2}") ==
             "x is not JSON (a colon is expected; line 2, byte 6); fix it");
  BOOST_TEST(problem_of("[1,]") == "x is not JSON (a value is expected; line 1, byte 4); fix it");
  BOOST_TEST(problem_of("{\"a\":[1") == "x is not JSON (it ends early; line 1, byte 8); fix it");
  for (const char* text : {"",
                           " ",
                           "nul",
                           "NaN",
                           "Infinity",
                           "-Infinity",
                           "[1] 2",
                           "[1 2]",
                           "{1:2}",
                           "{\"a\":1,}",
                           "01",
                           "1.",
                           ".5",
                           "-",
                           "+1",
                           "1e",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\u12",
                           "\"\t\"",
                           "\"\xff\"",
                           "\"\xed\xa0\x80\"",
                           R"("\ud800")",
                           R"("\ud800\u0041")",
                           R"("\udc00")",
                           "[1]//",
                           "\xef\xbb\xbf[1]",
                           "]",
                           "[}",
                           "{]",
                           "[\x01]"}) {
    BOOST_TEST(!parse_json(text).has_value(), text);
  }
}

BOOST_AUTO_TEST_CASE(depth_takes_no_stack_and_is_limited) {
  const std::size_t deep = 10'000'000;
  BOOST_TEST(problem_of(repeated("[", 33)).find("nested too deeply; line 1, byte 33") !=
             std::string::npos);
  BOOST_TEST(problem_of(repeated("[", 32) + repeated("]", 32)) == "");
  BOOST_TEST(!parse_json(repeated("[", deep)).has_value());
  BOOST_TEST(!parse_json(repeated("{\"a\":", deep / 5)).has_value());
}

BOOST_AUTO_TEST_CASE(length_members_and_values_are_limited) {
  const std::string many = "[" + repeated("0,", 99) + "0]";
  BOOST_TEST(problem_of(many, {.values = 101}) == "");
  BOOST_TEST(problem_of(many, {.values = 100}).find("too many values") != std::string::npos);
  BOOST_TEST(problem_of(many, {.bytes = 100}).find("the text is too long") != std::string::npos);
  std::string members = "{\"0\":0";
  for (int i = 1; i <= 4096; ++i) members += ",\"" + std::to_string(i) + "\":0";
  BOOST_TEST(problem_of(members + "}").find("an object of too many members") != std::string::npos);
  BOOST_TEST(problem_of(members + "}", {.members = 4097}) == "");
}
