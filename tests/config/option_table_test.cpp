#include <boost/test/unit_test.hpp>

#include "core/refusal.hpp"
#include "lockstep/config/option_table.hpp"

#include <cmath>
#include <utility>

using namespace lockstep;
using test::contains;
using test::refusal;

namespace {

enum class Leaf { green, black };

/// Options of a small command.
struct Tea {
  std::string leaf = "green";
  std::int64_t cups = 2;
  double minutes = 2.5;
  bool sugar = false;
  bool pot = true;
  friend bool operator==(const Tea&, const Tea&) = default;
};

OptionTable<Tea> tea_options() {
  OptionTable<Tea> table;
  table.group("Tea")
      .add(&Tea::leaf, {.name = "leaf", .help = "what is steeped", .choices = {"green", "black"}})
      .add(&Tea::cups, {.name = "cups", .help = "how many", .min = 1, .max = 9})
      .add(&Tea::minutes, {.name = "minutes", .help = "how long", .unit = "minutes", .min = 0})
      .add(&Tea::sugar, {.name = "sugar", .help = "with sugar"})
      .add(&Tea::pot, {.name = "pot", .help = "in a pot"});
  return table;
}

OptionTable<Tea>::Parsed parse(const std::vector<std::string>& args) {
  return tea_options().parse(args);
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_arguments_give_the_default_struct) {
  const auto parsed = parse({});

  BOOST_TEST((parsed.value == Tea{}));
  BOOST_TEST(parsed.given.empty());
}

BOOST_AUTO_TEST_CASE(values_follow_their_option_or_an_equal_sign) {
  const auto parsed = parse({"--leaf", "black", "--cups=3", "--minutes", "0.5"});

  BOOST_TEST((parsed.value ==
              Tea{.leaf = "black", .cups = 3, .minutes = 0.5, .sugar = false, .pot = true}));
  BOOST_TEST((parsed.given == std::set<std::string>{"cups", "leaf", "minutes"}));
}

BOOST_AUTO_TEST_CASE(switches_have_four_spellings) {
  BOOST_TEST(parse({"--sugar"}).value.sugar);
  BOOST_TEST(parse({"--sugar=true"}).value.sugar);
  BOOST_TEST(!parse({"--sugar=false"}).value.sugar);
  BOOST_TEST(!parse({"--no-pot"}).value.pot);
  BOOST_TEST(!parse({"--pot=false"}).value.pot);
  BOOST_TEST((parse({"--no-pot"}).given == std::set<std::string>{"pot"}));
  BOOST_TEST(contains(refusal([] { parse({"--sugar=1"}); }), "true or false"));
}

BOOST_AUTO_TEST_CASE(a_switch_takes_no_value_after_a_blank) {
  BOOST_TEST(contains(refusal([] { parse({"--sugar", "true"}); }), "'true' stands alone"));

  const auto parsed = tea_options().parse({"--sugar", "kitchen"}, true);

  BOOST_TEST(parsed.value.sugar);
  BOOST_TEST((parsed.positional == std::vector<std::string>{"kitchen"}));
}

BOOST_AUTO_TEST_CASE(unknown_options_are_refused_with_the_nearest) {
  BOOST_TEST(contains(refusal([] { parse({"--cup", "3"}); }), "did you mean --cups"));
  BOOST_TEST(contains(refusal([] { parse({"--cup=3"}); }), "--cup "));
  BOOST_TEST(contains(refusal([] { parse({"--no-cups"}); }), "--no-cups"));
  BOOST_TEST(contains(refusal([] { parse({"--zeppelin"}); }), "unknown option --zeppelin"));
}

BOOST_AUTO_TEST_CASE(abbreviations_are_unknown_options) {
  BOOST_TEST(contains(refusal([] { parse({"--min", "3"}); }), "unknown option --min"));
  BOOST_TEST(contains(refusal([] { parse({"--sug"}); }), "unknown option --sug"));
}

BOOST_AUTO_TEST_CASE(a_missing_value_is_refused) {
  BOOST_TEST(contains(refusal([] { parse({"--cups"}); }), "cups"));
  BOOST_TEST(contains(refusal([] { parse({"--cups", "--leaf", "black"}); }), "cups"));
  BOOST_TEST(contains(refusal([] { parse({"--cups", "--sugar"}); }), "--cups has no value"));
  BOOST_TEST(contains(refusal([] { parse({"--cups="}); }), "cups"));
}

BOOST_AUTO_TEST_CASE(a_negative_number_is_a_value_not_an_option) {
  const std::string message = refusal([] { parse({"--cups", "-1"}); });

  BOOST_TEST(contains(message, "--cups is '-1'"));
  BOOST_TEST(contains(message, "from 1 to 9"));
}

BOOST_AUTO_TEST_CASE(a_repeated_option_is_refused_with_both_values) {
  const std::string message = refusal([] { parse({"--cups", "3", "--cups=4"}); });

  BOOST_TEST(contains(message, "--cups"));
  BOOST_TEST(contains(message, "'3'"));
  BOOST_TEST(contains(message, "'4'"));
  BOOST_TEST(contains(refusal([] { parse({"--sugar", "--no-sugar"}); }), "--sugar is given twice"));
}

BOOST_AUTO_TEST_CASE(options_after_override_replace_those_of_the_same_name) {
  const auto parsed =
      tea_options().parse({"--cups", "3", "kitchen", "--sugar", "--leaf=black", "--override",
                           "--cups=4", "--no-sugar", "--override", "--cups", "5"},
                          /*allow_positional=*/true);

  BOOST_TEST((parsed.value ==
              Tea{.leaf = "black", .cups = 5, .minutes = 2.5, .sugar = false, .pot = true}));
  BOOST_TEST((parsed.given == std::set<std::string>{"cups", "leaf", "sugar"}));
  BOOST_TEST((parsed.positional == std::vector<std::string>{"kitchen"}));
  BOOST_TEST(
      (parse({"--override", "--override", "--cups", "3", "--override"}).value == Tea{.cups = 3}));
}

BOOST_AUTO_TEST_CASE(a_repetition_on_one_side_of_override_is_refused) {
  for (const auto& [args, values] :
       {std::pair<std::vector<std::string>, const char*>{
            {"--cups", "3", "--cups", "4", "--override", "--cups", "5"}, "'3' and '4'"},
        {{"--cups", "3", "--override", "--cups=4", "--cups=5"}, "'4' and '5'"}}) {
    BOOST_TEST(contains(refusal([&] { parse(args); }), values));
  }
  BOOST_TEST(contains(refusal([] { parse({"--cups", "--override", "3"}); }), "cups"));
}

BOOST_AUTO_TEST_CASE(override_after_the_last_option_is_an_argument) {
  const auto parsed = tea_options().parse({"--", "--override"}, /*allow_positional=*/true);

  BOOST_TEST((parsed.positional == std::vector<std::string>{"--override"}));
}

BOOST_AUTO_TEST_CASE(positional_arguments_keep_their_order) {
  const auto parsed = tea_options().parse({"one", "--cups", "3", "two", "--", "--three"}, true);

  BOOST_TEST((parsed.positional == std::vector<std::string>{"one", "two", "--three"}));
  BOOST_TEST(parsed.value.cups == 3);
}

BOOST_AUTO_TEST_CASE(help_shows_each_option_with_its_range_unit_and_default) {
  const std::string help = tea_options().help();

  for (const char* part :
       {"Tea:", "--leaf", "green, black", "[green]", "--cups", "from 1 to 9", "[2]", "--minutes",
        "in minutes", "[2.5]", "--[no-]sugar", "[false]", "[true]"}) {
    BOOST_TEST_CONTEXT(part) {
      BOOST_TEST(contains(help, part));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_struct_from_code_is_checked_like_a_command_line) {
  tea_options().check_values({});

  BOOST_TEST(
      contains(refusal([] { tea_options().check_values({.leaf = "oak"}); }), "--leaf is 'oak'"));
  BOOST_TEST(contains(refusal([] { tea_options().check_values({.cups = 10}); }), "--cups is '10'"));
  BOOST_TEST(contains(refusal([] { tea_options().check_values({.minutes = std::nan("")}); }),
                      "--minutes is 'nan'"));
}

namespace {

/// A command that reuses options of Tea, with another default.
struct Tray {
  Tea tea = {.leaf = "black"};
  std::optional<Leaf> spare = {};
  std::optional<bool> cover = {};
};

OptionTable<Tray> tray_options() {
  OptionTable<Tray> table;
  table.group("Tray")
      .add(&Tray::tea, tea_options(),
           {{.name = "leaf"}, {.name = "cups", .help = "of the tray", .min = 2}, {.name = "pot"}})
      .add(&Tray::spare, "none",
           {.name = "spare", .help = "in reserve", .choices = {"green", "black"}})
      .add(&Tray::cover, "auto", {.name = "cover", .help = "over it"});
  return table;
}

}  // namespace

BOOST_AUTO_TEST_CASE(shared_options_keep_their_declaration_except_for_the_changes) {
  const auto parsed = tray_options().parse({"--cups", "3", "--no-pot"});

  BOOST_TEST((parsed.value.tea == Tea{.leaf = "black", .cups = 3, .pot = false}));
  BOOST_TEST(contains(refusal([] {
                        static_cast<void>(tray_options().parse({"--cups", "1"}));
                      }),
                      "from 2 to 9"));
  BOOST_TEST(contains(refusal([] {
                        static_cast<void>(tray_options().parse({"--leaf", "x"}));
                      }),
                      "one of green, black"));
  BOOST_TEST(tray_options().help().find("what is steeped; one of green, black [black]") !=
             std::string::npos);
  BOOST_TEST(tray_options().help().find("of the tray; a whole number from 2 to 9 [2]") !=
             std::string::npos);
  BOOST_TEST(tray_options().help().find("minutes") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_optional_choice_also_accepts_none) {
  BOOST_TEST(!tray_options().parse({}).value.spare.has_value());
  BOOST_TEST((tray_options().parse({"--spare", "black"}).value.spare == Leaf::black));
  BOOST_TEST(!tray_options().parse({"--spare", "none"}).value.spare.has_value());
  BOOST_TEST(tray_options().get({.spare = Leaf::green}, "spare") == "green");
  BOOST_TEST(contains(refusal([] {
                        static_cast<void>(tray_options().parse({"--spare", "x"}));
                      }),
                      "one of none, green, black"));
}

BOOST_AUTO_TEST_CASE(an_optional_switch_is_absent_unless_it_is_given) {
  BOOST_TEST(!tray_options().parse({}).value.cover.has_value());
  BOOST_TEST((tray_options().parse({"--cover"}).value.cover == true));
  BOOST_TEST((tray_options().parse({"--no-cover"}).value.cover == false));
  BOOST_TEST((tray_options().parse({"--cover=false"}).value.cover == false));
  BOOST_TEST(tray_options().get({.cover = true}, "cover") == "true");
  BOOST_TEST(tray_options().get({}, "cover") == "auto");
  tray_options().check_values({});
  BOOST_TEST(contains(tray_options().help(), "--[no-]cover"));
  BOOST_TEST(contains(tray_options().help(), "over it [auto]"));
}
