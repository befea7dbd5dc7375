#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/sha256.hpp"
#include "lockstep/report/sweep.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

using namespace lockstep;
using report::plan_sweep;
using report::Sweep;
using report::sweep_lines;
using report::sweep_name;
using report::SweepRun;
using report::words_of;
using test::TemporaryDirectory;
using test::write_file;

namespace {

const std::vector<std::string> common{"--synthetic", "--epochs=3", "--run-dir=runs"};

Sweep plan(const std::vector<std::string>& lines) {
  return plan_sweep(lines, "rates.txt", common);
}

std::string name_of(const std::string& line) {
  return sweep_name(words_of(line));
}

/// The status and text of the Error of these lines.
std::string refusal(const std::vector<std::string>& lines) {
  try {
    static_cast<void>(plan(lines));
  } catch (const Error& error) {
    return fmt::format("{} {}", static_cast<int>(error.status()), error.what());
  }
  return "nothing was refused";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(comments_and_blank_lines_are_no_runs) {
  const std::vector<std::string> lines = sweep_lines(
      "# rates\n--lr 0.1\n\n  # --lr 0.2\n \t\r\n  --lr=0.3\t--seed 1\r\n--lr 0.4\r", "rates.txt");

  BOOST_TEST((lines == std::vector<std::string>{"--lr 0.1", "  --lr=0.3\t--seed 1", "--lr 0.4"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(sweep_lines("# none\n\n", "rates.txt")), Error,
                        [](const Error& error) {
                          return error.status() == ExitStatus::bad_input &&
                                 contains(error.what(), "no options in rates.txt");
                        });
}

BOOST_AUTO_TEST_CASE(the_checksum_is_that_of_the_standard) {
  BOOST_TEST(sha256_of("abc") ==
             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

BOOST_AUTO_TEST_CASE(a_run_is_named_after_its_options_in_any_order_and_spelling) {
  BOOST_TEST(name_of("--lr 0.1 --weight-decay 1e-4") == "lr-0.1_weight-decay-1e-4");
  BOOST_TEST(name_of("  --weight-decay=1e-4\t--lr=0.1 ") == "lr-0.1_weight-decay-1e-4");
  BOOST_TEST(name_of("--seed 1 --nesterov") == "nesterov_seed-1");
  BOOST_TEST(name_of("--lr -0.1") == "lr--0.1");
  BOOST_TEST(name_of("--model resnext50_32x4d") == "model-resnext50_32x4d");
  BOOST_TEST(name_of("--data a=b=c") == "data-a-b-c-" + sha256_of("data-a=b=c\n").substr(0, 8));
}

BOOST_AUTO_TEST_CASE(names_that_files_cannot_have_are_told_apart_by_checksums) {
  std::string long_line;
  for (int i = 0; i < 30; ++i) long_line += fmt::format("--x{} 12345678 ", i);
  const std::vector<std::string> lines{"--data /a/b",       "--data a-b/",   "--data=/a-b",
                                       "--data \u00e9",     "--data \u00e8", long_line,
                                       long_line + "--y 1", "--data ../.."};

  std::set<std::string> names;
  for (const std::string& line : lines) names.insert(name_of(line));

  BOOST_TEST(names.size() == lines.size());
  for (const std::string& name : names) {
    BOOST_TEST(name.size() <= 200);
    BOOST_TEST(std::ranges::all_of(name, [](char c) {
      return std::string_view("abcdefghijklmnopqrstuvwxyz0123456789.-_").find(c) !=
             std::string_view::npos;
    }));
  }
  // Those that folders of earlier sweeps have.
  BOOST_TEST(names.contains("data--a-b-fb706176"));
  BOOST_TEST(names.contains("data-..-..-44f0bf25"));
}

BOOST_AUTO_TEST_CASE(options_of_a_line_override_the_common_ones) {
  const Sweep sweep = plan({"--epochs 5 --no-synthetic --data d"});

  BOOST_TEST(sweep.directory == "runs");
  BOOST_TEST_REQUIRE(sweep.runs.size() == 1);
  const SweepRun& run = sweep.runs.front();
  BOOST_TEST(run.directory == "runs/data-d_epochs-5_no-synthetic");
  BOOST_TEST(run.configuration.find("\nepochs=5\n") != std::string::npos);
  const Config config = parse_train_options(run.arguments).config;
  BOOST_TEST(config.epochs == 5);
  BOOST_TEST(!config.synthetic);
  BOOST_TEST(config.run_dir == run.directory);
}

BOOST_AUTO_TEST_CASE(without_a_run_directory_the_model_names_it) {
  const std::vector<std::string> lines{"--lr 1", "--model mlp"};
  const Sweep sweep = plan_sweep(lines, "rates.txt", {{"--synthetic"}});

  BOOST_TEST(sweep.directory == "runs/resnet50");
  BOOST_TEST(sweep.runs.at(0).directory == "runs/resnet50/lr-1");
  BOOST_TEST(sweep.runs.at(1).directory == "runs/mlp/model-mlp");
}

BOOST_AUTO_TEST_CASE(a_line_that_cannot_be_trained_with_is_named) {
  const std::string unknown = refusal({"--lr 0.1", "--learning-rat 1"});
  BOOST_TEST(
      contains(unknown, "64 '--learning-rat 1' in rates.txt cannot be trained with: unknown"));
  BOOST_TEST(contains(refusal({"--lr 0.1 --lr 0.2"}), "--lr is given twice"));
  BOOST_TEST(contains(refusal({"--beta1 0.5"}), "--beta1"));
  BOOST_TEST(contains(refusal({"--nesterov --momentum 0"}), "--nesterov needs momentum"));
  BOOST_TEST(contains(refusal({"--seed 1 --run-dir elsewhere"}), "64 '--seed 1 --run-dir"));
  BOOST_TEST(contains(refusal({"--run-dir=elsewhere"}), "sets --run-dir"));
  BOOST_TEST(contains(refusal({"--seed 1 --override --seed 2"}), "sets --override"));
  BOOST_TEST(contains(refusal({"--print-config"}), "sets --print-config"));
}

BOOST_AUTO_TEST_CASE(lines_that_are_the_same_run_are_refused) {
  BOOST_TEST(contains(refusal({"--lr 0.1", "--lr 0.2", "--lr=0.1"}),
                      "65 two lines of rates.txt are the same run ('--lr 0.1' and '--lr=0.1')"));
  BOOST_TEST(contains(refusal({"--seed 3", "--seed 3 --epochs 3"}), "65 two lines"));
}

BOOST_AUTO_TEST_CASE(errors_of_the_common_options_are_not_those_of_a_line) {
  const std::vector<std::string> lines{"--lr 1"};
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(plan_sweep(lines, "rates.txt", {{"--seeed=1"}})), Error,
      [](const Error& error) { return std::string(error.what()).starts_with("unknown option"); });
}

BOOST_AUTO_TEST_CASE(a_run_has_finished_with_its_epochs_and_steps) {
  const TemporaryDirectory directory;
  SweepRun run{.line = {},
               .arguments = {},
               .directory = directory.path(),
               .configuration = "lr=0.1\nepochs=3\nmax-steps=0\nrun-dir=elsewhere\n"};
  const auto state = [&](const std::string& reason) {
    write_file(directory / "metrics.jsonl", R"({"event":"start","step":0,"ranks":1})"
                                            "\n"
                                            R"({"event":"stop","step":7,"reason":")" +
                                                reason + "\"}\n");
    return report::state_of(run);
  };
  BOOST_TEST(report::state_of(run).status.empty());
  write_file(directory / "config.ini", "lr=0.1\nepochs=3\nmax-steps=0\nrun-dir=here\n");

  BOOST_TEST(state("finished").finished);
  BOOST_TEST(state("finished").other.empty());
  BOOST_TEST(state("finished").step == 7);
  BOOST_TEST(!state("diverged").finished);
  BOOST_TEST(state("diverged").status == "diverged");
  run.configuration = "lr=0.2\nepochs=3\nmax-steps=0\n";
  BOOST_TEST(state("finished").finished);
  BOOST_TEST(state("finished").other == "lr 0.1");
  run.configuration = "lr=0.1\nepochs=4\nmax-steps=0\n";
  BOOST_TEST(!state("finished").finished);
  run.configuration = "lr=0.1\nepochs=3\nmax-steps=9\n";
  BOOST_TEST(!state("finished").finished);
}
