#include "lockstep/compute/convolution_plan.hpp"

#include "core/sanitizers.hpp"
#include "lockstep/core/error.hpp"

#include <omp.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

namespace fs = std::filesystem;

/// Two shapes that Winograd's algorithm can compute, the first of them twice, and other
/// convolutions.
Graph network() {
  Graph graph("two shapes", {3, 16, 16});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "stem", .out_channels = 32, .kernel = 3, .padding = 1});
  for (const char* name : {"one", "two"}) {
    x = graph.conv2d(x, {.name = name, .out_channels = 32, .kernel = 3, .padding = 1});
  }
  x = graph.conv2d(x,
                   {.name = "smaller", .out_channels = 64, .kernel = 3, .stride = 2, .padding = 1});
  x = graph.conv2d(x, {.name = "three", .out_channels = 64, .kernel = 3, .padding = 1});
  x = graph.conv2d(x, {.name = "narrow", .out_channels = 64, .kernel = 1});
  x = graph.linear(graph.flatten(graph.global_avg_pool(x)), {.name = "fc", .out_features = 10});
  graph.softmax_cross_entropy(x, {});
  return graph;
}
const WinogradShape wide{
    .in_channels = 32, .height = 16, .width = 16, .out_channels = 32, .padding = 1};
const WinogradShape deep{
    .in_channels = 64, .height = 8, .width = 8, .out_channels = 64, .padding = 1};
constexpr std::int64_t batch_size = 64;  // 302 million operations per step

class Folder final {
 public:
  Folder() : path_(fs::temp_directory_path() / ("lockstep-plan-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return (path_ / "cache" / "times.tsv").string(); }

 private:
  fs::path path_;
};

/// A fake library with fixed times, which records the timed problems.
struct Library {
  ConvolutionTimes times{.direct = 2, .winograd = 1};
  std::size_t scratch_bytes = 1 << 20;
  std::vector<ConvolutionProblem> timed = {};
  bool has_matrix_unit = false;
  [[nodiscard]] ConvolutionLibrary calls() {
    return {.winograd_scratch_bytes = [this](const ConvolutionProblem&) { return scratch_bytes; },
            .time =
                [this](const ConvolutionProblem& problem) {
                  timed.push_back(problem);
                  return times;
                },
            .has_matrix_unit = [this] { return has_matrix_unit; }};
  }
};

ConvolutionPlan plan(Library& library, ConvolutionPlanOptions options = {},
                     const std::string& file = "") {
  if (options.batch_size == 0) options.batch_size = batch_size;
  TrialCache cache(file);
  return plan_convolutions(network(), options, cache, library.calls());
}

bool chooses_winograd(const ConvolutionChoices& choices) {
  return choices.text().find("winograd") != std::string::npos;
}

template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    BOOST_TEST((error.status() == ExitStatus::usage));
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_step_of_each_shape_is_timed_once_and_the_faster_is_chosen) {
  Library library;
  const ConvolutionPlan faster = plan(library, {.threads = 3});
  library.times.winograd = 2.5;
  const ConvolutionPlan slower = plan(library);

  BOOST_REQUIRE(library.timed.size() == 2 * 2 * 3u);
  BOOST_TEST(library.timed[0].threads == 3);
  BOOST_TEST(library.timed[0].batch_size == batch_size);
  for (const WinogradShape& shape : {wide, deep}) {
    for (const ConvolutionStep step : convolution_steps) {
      BOOST_TEST(faster.choices.winograd(shape, step));
      BOOST_TEST(slower.choices.contains(shape));
      BOOST_TEST(!slower.choices.winograd(shape, step));
      BOOST_TEST((slower.trials.at({shape, step}).times == library.times));
    }
  }
}

BOOST_AUTO_TEST_CASE(winograd_is_not_chosen_for_a_gain_of_a_few_percent) {
  Library library{.times = {.direct = 1, .winograd = 0.96}};
  BOOST_TEST(!chooses_winograd(plan(library).choices));
  library.times.winograd = 0.94;
  BOOST_TEST(chooses_winograd(plan(library).choices));
}

BOOST_AUTO_TEST_CASE(winograd_is_not_timed_if_its_scratch_memory_is_large) {
  Library library{.scratch_bytes = std::size_t{1} << 29};
  BOOST_TEST(chooses_winograd(plan(library).choices));
  library.timed.clear();

  library.scratch_bytes = (std::size_t{1} << 29) + 1;
  const ConvolutionPlan small = plan(library);
  BOOST_TEST(!chooses_winograd(small.choices));
  BOOST_TEST(library.timed.empty());
  const ConvolutionTrial& trial = small.trials.at({wide, ConvolutionStep::forward});
  BOOST_TEST(trial.scratch_bytes == library.scratch_bytes);
  BOOST_TEST(!trial.times.has_value());

  BOOST_TEST(chooses_winograd(plan(library, {.algorithm = ConvAlgorithm::winograd}).choices));
  // With this many samples the network's values take several GiB.
  BOOST_TEST(chooses_winograd(plan(library, {.batch_size = 1 << 14}).choices));
}

BOOST_AUTO_TEST_CASE(small_convolutions_are_computed_directly_and_not_timed) {
  Library library;
  const ConvolutionPlan small = plan(library, {.batch_size = 8});

  BOOST_TEST(library.timed.empty());
  BOOST_TEST(small.choices.contains(wide));
  BOOST_TEST(!chooses_winograd(small.choices));
}

BOOST_AUTO_TEST_CASE(nothing_is_timed_without_a_batch) {
  Library library;
  TrialCache cache("");
  const auto choices = plan_convolutions(network(), {}, cache, library.calls()).choices;

  BOOST_TEST(library.timed.empty());
  BOOST_TEST(!chooses_winograd(choices));
}

BOOST_AUTO_TEST_CASE(recorded_choices_override_measurements) {
  Library library;
  ConvolutionChoices known;
  for (const ConvolutionStep step : convolution_steps) {
    known.set(wide, step, step == ConvolutionStep::data_gradient);
  }
  library.times.direct = 0.1;

  const ConvolutionPlan found = plan(library, {.known = known.text()});

  BOOST_TEST(found.choices.winograd(wide, ConvolutionStep::data_gradient));
  BOOST_TEST(!found.choices.winograd(wide, ConvolutionStep::forward));
  BOOST_TEST(!found.choices.winograd(deep, ConvolutionStep::data_gradient));
  BOOST_TEST(library.timed.size() == 3u);  // for the shape without a recorded choice
}

BOOST_AUTO_TEST_CASE(forced_algorithms_are_not_timed) {
  Library library;
  const auto winograd = plan(library, {.algorithm = ConvAlgorithm::winograd});
  const auto direct =
      plan(library, {.algorithm = ConvAlgorithm::direct, .known = winograd.choices.text()});

  BOOST_TEST(library.timed.empty());
  BOOST_TEST(winograd.choices.winograd(deep, ConvolutionStep::weight_gradient));
  BOOST_TEST(!direct.choices.winograd(deep, ConvolutionStep::weight_gradient));
}

BOOST_AUTO_TEST_CASE(winograd_is_refused_where_it_does_not_apply) {
  Graph without("no 3x3", {3, 16, 16});
  const ValueId x =
      without.conv2d(without.input(), {.name = "narrow", .out_channels = 32, .kernel = 1});
  const ValueId y = without.conv2d(
      x, {.name = "strided", .out_channels = 32, .kernel = 3, .stride = 2, .padding = 1});
  without.softmax_cross_entropy(without.linear(without.flatten(without.global_avg_pool(y)),
                                               {.name = "fc", .out_features = 10}),
                                {});
  TrialCache cache("");
  Library unused;
  const std::string nowhere = refusal([&] {
    static_cast<void>(
        plan_convolutions(without, {.algorithm = ConvAlgorithm::winograd}, cache, unused.calls()));
  });
  BOOST_TEST(nowhere.find("--conv-algorithm winograd") != std::string::npos, nowhere);
  BOOST_TEST(nowhere.find("no 3x3") != std::string::npos, nowhere);

  Library library;
  const std::string fp16 = refusal([&] {
    static_cast<void>(
        plan(library, {.algorithm = ConvAlgorithm::winograd, .precision = Precision::fp16}));
  });
  BOOST_TEST(fp16.find("--precision fp16") != std::string::npos, fp16);
}

BOOST_AUTO_TEST_CASE(in_bf16_the_trials_are_in_bf16_unless_a_matrix_unit_is_there) {
  Folder folder;
  Library library;
  static_cast<void>(plan(library, {}, folder.file()));
  const std::size_t in_fp32 = library.timed.size();
  const ConvolutionPlanOptions bf16{.precision = Precision::bf16};
  BOOST_TEST(chooses_winograd(plan(library, bf16, folder.file()).choices));
  BOOST_REQUIRE(library.timed.size() == 2 * in_fp32);  // times in fp32 do not count
  for (std::size_t i = 0; i < library.timed.size(); ++i) {
    BOOST_TEST(library.timed[i].bf16 == (i >= in_fp32));
  }
  library.has_matrix_unit = true;
  const ConvolutionPlan direct = plan(library, bf16);
  BOOST_TEST(direct.choices.contains(wide));
  BOOST_TEST(!chooses_winograd(direct.choices));
  BOOST_TEST(chooses_winograd(
      plan(library, {.algorithm = ConvAlgorithm::winograd, .precision = Precision::bf16}).choices));
  // What a run chose on another processor stays in force.
  const std::string known = "32x16x16 to 32, padding 1: winograd direct direct\n";
  const ConvolutionPlan resumed = plan(library, {.precision = Precision::bf16, .known = known});
  BOOST_TEST(resumed.choices.winograd(wide, ConvolutionStep::forward));
  BOOST_TEST(library.timed.size() == 2 * in_fp32);
}

BOOST_AUTO_TEST_CASE(precisions_of_gpus_choose_nothing) {
  Library library;
  for (const Precision precision : {Precision::fp16, Precision::tf32}) {
    BOOST_TEST(plan(library, {.precision = precision}).choices.text().empty());
  }
  BOOST_TEST(library.timed.empty());
}

BOOST_AUTO_TEST_CASE(times_are_kept_on_disk_by_threads_and_batch) {
  const Folder folder;
  Library library;
  static_cast<void>(plan(library, {.threads = 2}, folder.file()));
  BOOST_TEST(library.timed.size() == 6u);
  library.times = {.direct = 1, .winograd = 2};

  const ConvolutionPlan again = plan(library, {.threads = 2}, folder.file());
  BOOST_TEST(library.timed.size() == 6u);
  BOOST_TEST(again.choices.winograd(wide, ConvolutionStep::forward));
  BOOST_TEST((again.trials.at({wide, ConvolutionStep::forward}).times ==
              ConvolutionTimes{.direct = 2, .winograd = 1}));

  static_cast<void>(plan(library, {.threads = 1}, folder.file()));
  BOOST_TEST(library.timed.size() == 12u);
  static_cast<void>(plan(library, {.threads = 2, .batch_size = 65}, folder.file()));
  BOOST_TEST(library.timed.size() == 18u);
  static_cast<void>(plan(library, {.threads = 1}, folder.file()));
  BOOST_TEST(library.timed.size() == 18u);
}

BOOST_AUTO_TEST_CASE(invalid_lines_of_a_cache_are_ignored) {
  const Folder folder;
  TrialCache cache(folder.file());
  cache.add("a", {.direct = 0.25, .winograd = 0.125});
  cache.save();
  std::ofstream(folder.file(), std::ios::app)
      << "noise\n\t\n\t1\nmore\tnoise\tstill\nx\t0.5\tinf\ny\t-1\t1\n";

  TrialCache read(folder.file());
  BOOST_TEST((read.find("a") == ConvolutionTimes{.direct = 0.25, .winograd = 0.125}));
  for (const char* key : {"x", "y", "noise", ""}) BOOST_TEST(!read.find(key));
}

BOOST_AUTO_TEST_CASE(times_are_read_back_exactly) {
  const Folder folder;
  const ConvolutionTimes times{.direct = 0.1 / 3, .winograd = 1e-6 / 7};
  TrialCache cache(folder.file());
  cache.add("a", times);
  cache.save();

  BOOST_TEST((TrialCache(folder.file()).find("a") == times));
}

BOOST_AUTO_TEST_CASE(a_cache_is_read_at_the_first_lookup) {
  const Folder folder;
  TrialCache early(folder.file());
  TrialCache cache(folder.file());
  cache.add("a", {.direct = 1, .winograd = 1});
  cache.save();

  BOOST_TEST(early.find("a").has_value());
}

BOOST_AUTO_TEST_CASE(saving_keeps_entries_of_other_jobs) {
  const Folder folder;
  TrialCache one(folder.file());
  TrialCache two(folder.file());
  one.add("a", {.direct = 1, .winograd = 1});
  two.add("b", {.direct = 2, .winograd = 2});
  one.save();
  two.save();

  TrialCache both(folder.file());
  BOOST_TEST((both.find("a") && both.find("b")));
}

BOOST_AUTO_TEST_CASE(an_unwritable_cache_is_ignored) {
  const Folder folder;
  std::ofstream(fs::path(folder.file()).parent_path()) << "in the directory's place";
  Library library;

  BOOST_TEST(chooses_winograd(plan(library, {}, folder.file()).choices));
}

BOOST_AUTO_TEST_CASE(the_cache_is_in_the_users_cache_directory) {
  setenv("HOME", "/home/someone", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  BOOST_TEST(trial_cache_path() == "/cache/lockstep/convolutions.tsv");
  setenv("XDG_CACHE_HOME", "relative", 1);
  BOOST_TEST(trial_cache_path() == "/home/someone/.cache/lockstep/convolutions.tsv");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  BOOST_TEST(trial_cache_path() == "");
}

BOOST_AUTO_TEST_CASE(choices_are_parsed_from_their_text_and_other_text_is_refused) {
  ConvolutionChoices choices;
  choices.set(wide, ConvolutionStep::forward, true);
  choices.set(deep, ConvolutionStep::weight_gradient, true);

  BOOST_TEST(choices.text() ==
             "32x16x16 to 32, padding 1: winograd direct direct\n"
             "64x8x8 to 64, padding 1: direct direct winograd\n");
  BOOST_TEST((ConvolutionChoices::parse(choices.text()) == choices));
  BOOST_TEST((ConvolutionChoices::parse("") == ConvolutionChoices()));
  for (const char* text : {"x", "32x16x16 to 32, padding 1: winograd direct\n",
                           "32x16x16 to 32, padding 1: winograd direct direct"}) {
    BOOST_CHECK_EXCEPTION(static_cast<void>(ConvolutionChoices::parse(text)), Error,
                          [](const Error& e) { return e.status() == ExitStatus::bad_input; });
  }
}

BOOST_AUTO_TEST_CASE(a_trial_is_limited_in_operations_per_thread) {
  const ConvolutionProblem problem{.shape = wide, .batch_size = 100'000, .threads = 8};
  const double each = problem.operations() / 100'000;

  const ConvolutionProblem of_one = trial_part(problem, 1);
  BOOST_TEST(of_one.operations() <= 8e9);
  BOOST_TEST(of_one.operations() + each > 8e9);
  const ConvolutionProblem of_eight = trial_part(problem, 8);
  BOOST_TEST(of_eight.operations() <= 64e9);
  BOOST_TEST(of_eight.operations() + each > 64e9);
  BOOST_TEST(trial_part({.shape = wide, .batch_size = 3}, 1).batch_size == 3);
  const WinogradShape giant{
      .in_channels = 4096, .height = 64, .width = 64, .out_channels = 4096, .padding = 1};
  BOOST_TEST(trial_part({.shape = giant, .batch_size = 3}, 1).batch_size == 1);
}

BOOST_AUTO_TEST_CASE(the_library_is_timed) {
  const ConvolutionProblem problem{.shape = wide, .batch_size = 2, .threads = 1};
  BOOST_TEST(problem.operations() == 2.0 * 2 * 32 * 32 * 9 * 16 * 16);
  const int threads = omp_get_max_threads();
  // Preemption counters of an idle machine, and of a machine that is never idle.
  const std::array<std::function<long()>, 2> counts{[] { return 0L; },
                                                    [n = 0L]() mutable { return ++n; }};
  for (const ConvolutionStep step : convolution_steps) {
    ConvolutionProblem each = problem;
    each.step = step;
    for (const int asked : {1, 3}) {
      each.threads = asked;
      for (const auto& count : counts) {
        const ConvolutionTimes times = time_convolution(each, count);
        // The fastest processors are far below this many operations a second.
        BOOST_TEST(times.direct > problem.operations() / 1e14);
        BOOST_TEST(times.winograd > problem.operations() / 1e14);
        BOOST_TEST(times.direct < 60);
        BOOST_TEST(times.winograd < 60);
        BOOST_TEST(omp_get_max_threads() == threads);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(scratch_memory_grows_with_threads,
                     *boost::unit_test::enable_if<test::parallel_loops>()) {
  ConvolutionProblem problem{
      .shape = deep, .step = ConvolutionStep::weight_gradient, .batch_size = 32, .threads = 1};
  const std::size_t one = winograd_scratch_bytes(problem);
  problem.threads = 8;

  BOOST_TEST(winograd_scratch_bytes(problem) > one);
}
