#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/config/option_value.hpp"

#include <bit>
#include <cmath>
#include <random>

using namespace lockstep;
using test::contains;
using test::refusal;

namespace {

template <typename T>
T parsed(const OptionSpec& spec, const std::string& text) {
  T value{};
  parse_option(spec, text, value);
  return value;
}

template <typename T>
std::string refused(const OptionSpec& spec, const std::string& text) {
  return refusal([&] { parsed<T>(spec, text); });
}

const OptionSpec free_spec{.name = "x", .help = ""};
const OptionSpec from_one{.name = "epochs", .help = "", .min = 1, .max = 90};
const OptionSpec above_zero{.name = "eps", .help = "", .min = 0, .above_min = true};

}  // namespace

BOOST_AUTO_TEST_CASE(whole_numbers_have_no_trailing_characters) {
  BOOST_TEST(parsed<std::int64_t>(free_spec, "0") == 0);
  BOOST_TEST(parsed<std::int64_t>(free_spec, "-7") == -7);
  BOOST_TEST(parsed<std::int64_t>(free_spec, "9223372036854775807") == INT64_MAX);
  for (const char* text : {"", " ", "1 ", " 1", "1.0", "1e3", "0x10", "+1", "ten", "1,2", "--1",
                           "9223372036854775808", "nan"}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(contains(refused<std::int64_t>(free_spec, text), "a whole number"));
  }
}

BOOST_AUTO_TEST_CASE(patterns_and_factors_are_separated_by_commas) {
  using Patterns = std::vector<std::string>;
  using Factors = std::vector<LrScale>;
  BOOST_TEST(parsed<Patterns>(free_spec, "").empty());
  BOOST_TEST((parsed<Patterns>(free_spec, "fc.*,a?b") == Patterns{"fc.*", "a?b"}));
  for (const char* text : {",", "a,", ",a", "a,,b", "a#b", " a"}) {
    BOOST_TEST_CONTEXT("'" << text << "'") BOOST_TEST(refused<Patterns>(free_spec, text) != "");
  }
  BOOST_TEST((parsed<Factors>(free_spec, "fc.*=2,x=1e-3") ==
              Factors{{.pattern = "fc.*", .factor = 2}, {.pattern = "x", .factor = 1e-3}}));
  for (const char* text :
       {"fc", "=2", "fc=", "fc=0", "fc=-1", "fc=inf", "fc=nan", "fc=2x", "a=1,"}) {
    BOOST_TEST_CONTEXT("'" << text << "'") BOOST_TEST(refused<Factors>(free_spec, text) != "");
  }
}

BOOST_AUTO_TEST_CASE(a_value_out_of_range_is_refused_with_option_value_and_range) {
  BOOST_TEST(parsed<std::int64_t>(from_one, "1") == 1);
  BOOST_TEST(parsed<std::int64_t>(from_one, "90") == 90);
  for (const char* text : {"0", "91", "-1"}) {
    const std::string message = refused<std::int64_t>(from_one, text);
    BOOST_TEST(contains(message, "--epochs is '" + std::string(text) + "'"));
    BOOST_TEST(contains(message, "from 1 to 90"));
  }
}

BOOST_AUTO_TEST_CASE(shares_in_another_unit_are_refused_with_the_value_to_give) {
  using List = std::vector<double>;
  const OptionSpec share{.name = "decay", .help = "", .min = 0, .max = 0.999999999};
  const OptionSpec pixels{.name = "mean", .help = "", .min = 0, .max = 1, .other_scale = 255};
  BOOST_TEST(contains(refused<double>(share, "90"), "divide by 100: --decay 0.9"));
  BOOST_TEST(contains(refused<double>(share, "99.99"), "divide by 100: --decay 0.9999"));
  BOOST_TEST(contains(refused<List>(pixels, "123.675,116.28,103.53"),
                      "divide by 255: --mean 0.485,0.456,0.406"));
  BOOST_TEST(contains(refused<List>(pixels, "0,127.5"), "divide by 255: --mean 0,0.5"));
  for (const char* text : {"100", "101", "-1", "nan", "inf"}) {
    BOOST_TEST(!contains(refused<double>(share, text), "divide"), text);
    BOOST_TEST(contains(refused<double>(share, text), "(it takes a number from 0 to 0.999999999)"));
  }
  for (const char* text : {"0.5,256", "-0.1,0.5", "nan", "0.4,inf"}) {
    BOOST_TEST(!contains(refused<List>(pixels, text), "divide"), text);
    BOOST_TEST(contains(refused<List>(pixels, text), "each a number from 0 to 1"), text);
  }
}

BOOST_AUTO_TEST_CASE(a_refusal_of_numbers_says_what_the_option_takes) {
  using List = std::vector<double>;
  BOOST_TEST(contains(refused<double>(free_spec, "much"), "(it takes a number)"));
  for (const char* text : {"[0.485,0.456]", "0.485 0.456", "0.485,,0.456", "0.485;0.456"}) {
    BOOST_TEST(contains(refused<List>(free_spec, text),
                        std::string("--x is '") + text + "' (it takes numbers with commas"));
  }
}

BOOST_AUTO_TEST_CASE(image_sizes_are_given_with_epochs) {
  using Sizes = std::vector<ImageSizeChange>;
  const OptionSpec spec{.name = "sizes", .help = "", .min = 1, .max = 500};
  const Sizes two{{.size = 192, .epoch = 60}, {.size = 224, .epoch = 80}};
  BOOST_TEST((parsed<Sizes>(spec, "") == Sizes()));
  BOOST_TEST((parsed<Sizes>(spec, "192@60,224@80") == two));
  BOOST_TEST(print_option(two) == "192@60,224@80");
  BOOST_TEST(print_option(Sizes()) == "");
  for (const char* text : {"192", "@", "192@", "@60", "192@60,", ",192@60", "192@0", "192@-1",
                           "0@60", "501@60", "192@60@2", "192@1.5", "192 @60", "192@60;224@80"}) {
    BOOST_TEST_CONTEXT("'" << text << "'") {
      const std::string message = refused<Sizes>(spec, text);
      BOOST_TEST(contains(message, "--sizes is '" + std::string(text) + "'"));
      BOOST_TEST(contains(message, "192@60,224@80"));
      BOOST_TEST(contains(message, "from 1 to 500"));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_exclusive_bound_is_out_of_range) {
  BOOST_TEST(parsed<double>(above_zero, "1e-300") == 1e-300);
  BOOST_TEST(contains(refused<double>(above_zero, "0"), "above 0"));
  BOOST_TEST(contains(refused<double>(above_zero, "-0.0"), "above 0"));
}

BOOST_AUTO_TEST_CASE(numbers_are_finite_without_trailing_characters) {
  BOOST_TEST(parsed<double>(free_spec, "0.1") == 0.1);
  BOOST_TEST(parsed<double>(free_spec, "1e-8") == 1e-8);
  BOOST_TEST(parsed<double>(free_spec, ".5") == 0.5);
  for (const char* text :
       {"", "nan", "-nan", "inf", "-inf", "1e999", "0.1x", "0.1 ", " 0.1", "0,1", "1e", "much"}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(contains(refused<double>(free_spec, text), "--x is '" + std::string(text) + "'"));
  }
}

BOOST_AUTO_TEST_CASE(a_printed_number_is_read_back_exactly) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isnormal(value)) continue;
    BOOST_TEST_REQUIRE(parsed<double>(free_spec, print_option(value)) == value);
  }
}

BOOST_AUTO_TEST_CASE(switches_accept_only_true_and_false) {
  BOOST_TEST(parsed<bool>(free_spec, "true"));
  BOOST_TEST(!parsed<bool>(free_spec, "false"));
  for (const char* text : {"", "1", "0", "yes", "True", "on"}) {
    BOOST_TEST(contains(refused<bool>(free_spec, text), "true or false"));
  }
}

BOOST_AUTO_TEST_CASE(lists_are_comma_separated_numbers) {
  const auto list = [](const std::string& text) {
    return parsed<std::vector<double>>(above_zero, text);
  };

  BOOST_TEST((list("") == std::vector<double>{}));
  BOOST_TEST((list("30") == std::vector<double>{30}));
  BOOST_TEST((list("30,60,80.5") == std::vector<double>{30, 60, 80.5}));
  for (const char* text : {",", "1,", ",1", "1,,2", "1;2", "1, 2", "1,0", "1,nan"}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(contains(refused<std::vector<double>>(above_zero, text), "--eps is '"));
  }
}

BOOST_AUTO_TEST_CASE(a_save_interval_is_steps_or_a_time_or_automatic) {
  const auto interval = [](const std::string& text) {
    return parsed<SaveInterval>(free_spec, text);
  };

  BOOST_TEST((interval("0") == SaveInterval{}));
  BOOST_TEST((interval("auto") == SaveInterval{.automatic = true}));
  BOOST_TEST((interval("500") == SaveInterval{.steps = 500, .seconds = 0}));
  BOOST_TEST((interval("90s") == SaveInterval{.steps = 0, .seconds = 90}));
  BOOST_TEST((interval("10min") == SaveInterval{.steps = 0, .seconds = 600}));
  BOOST_TEST((interval("2h") == SaveInterval{.steps = 0, .seconds = 7200}));
  BOOST_TEST((interval("0.5h") == SaveInterval{.steps = 0, .seconds = 1800}));
  for (const char* text :
       {"", "-1", "0s", "-5min", "min", "10m", "10 min", "1.5", "1d", "nanh", "infs", "1e308h"}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(
        contains(refused<SaveInterval>(free_spec, text), "--x is '" + std::string(text) + "'"));
  }
}

BOOST_AUTO_TEST_CASE(a_range_of_steps_has_a_first_and_a_last) {
  const auto range = [](const std::string& text) { return parsed<StepRange>(free_spec, text); };

  BOOST_TEST((range("") == StepRange{}));
  BOOST_TEST((range("3:12") == StepRange{.first = 3, .last = 12}));
  BOOST_TEST((range("7:7") == StepRange{.first = 7, .last = 7}));
  BOOST_TEST(print_option(range("3:12")) == "3:12");
  BOOST_TEST(print_option(StepRange{}) == "");
  for (const char* text : {"0:3", "-1:3", "4:3", "3", "3:", ":3", ":", "a:b", "3:b", "1:2:3", "1-3",
                           " 1:3", "1:3 ", "1 :3", "1.5:3", "0", "9223372036854775808:1"}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(contains(refused<StepRange>(free_spec, text), "--x is '" + std::string(text) + "'"));
  }
}

BOOST_AUTO_TEST_CASE(text_that_a_configuration_file_cannot_hold_is_refused) {
  BOOST_TEST(parsed<std::string>(free_spec, "a path/with = and % and ü") ==
             "a path/with = and % and ü");
  BOOST_TEST(parsed<std::string>(free_spec, "") == "");
  for (const char* text : {"a#b", "#", "a\nb", "a\r", " a", "a ", "\ta", " "}) {
    BOOST_TEST_CONTEXT("'" << text << "'")
    BOOST_TEST(contains(refused<std::string>(free_spec, text), "configuration file cannot hold"));
  }
}

BOOST_AUTO_TEST_CASE(a_choice_is_one_of_the_named_ones) {
  const OptionSpec spec{
      .name = "augment", .help = "", .choices = {"none", "crop-flip", "resized-crop"}};

  BOOST_TEST(parse_choice(spec, "none") == 0U);
  BOOST_TEST(parse_choice(spec, "resized-crop") == 2U);
  for (const char* text : {"", "crop", "crop_flip", "None", "none "}) {
    const std::string message = refusal([&] { static_cast<void>(parse_choice(spec, text)); });
    BOOST_TEST(contains(message, "none, crop-flip, resized-crop"));
    BOOST_TEST(contains(message, "--augment is '" + std::string(text) + "'"));
  }
}

BOOST_AUTO_TEST_CASE(the_nearest_name_is_found_or_none) {
  const std::vector<std::string> names{"batch-size", "lr", "lr-schedule", "momentum"};

  BOOST_TEST(nearest_name("bacth-size", names) == "batch-size");
  BOOST_TEST(nearest_name("lrr", names) == "lr");
  BOOST_TEST(nearest_name("momentun", names) == "momentum");
  BOOST_TEST(nearest_name("gradient-accumulation", names) == "");
}
