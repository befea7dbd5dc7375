#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/report/comparison.hpp"
#include "lockstep/report/metrics_csv.hpp"
#include "lockstep/report/page.hpp"
#include "lockstep/report/run_record.hpp"

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using namespace lockstep;
using report::RunRecord;
using test::TemporaryDirectory;
using test::write_file;

namespace {

RunRecord read(const TemporaryDirectory& directory, const std::string& metrics,
               const std::string& config = "lr=0.1\n") {
  write_file(directory / "metrics.jsonl", metrics);
  write_file(directory / "config.ini", config);
  return report::read_run(directory.path(), 100);
}

double loss(const RunRecord& run, std::size_t bin) {
  return run.steps.range(bin, RunRecord::series(run.steps, "loss")).mean();
}

std::string step_line(int step, const std::string& value) {
  return R"({"event":"step","step":)" + std::to_string(step) + R"(,"samples":8,"loss":)" + value +
         R"(,"seconds":{"data":0.5,"forward":1,"backward":2,"communication":0,"optimizer":0.25}})" +
         "\n";
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_have_their_values_and_the_sum_of_their_phases) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory, step_line(1, "2.5") + step_line(2, "-1e-3"));

  BOOST_TEST(run.steps.rows() == 2);
  BOOST_TEST(loss(run, 0) == 2.5);
  BOOST_TEST(loss(run, 1) == -0.001);
  BOOST_TEST(run.steps.range(0, RunRecord::series(run.steps, "seconds")).mean() == 3.75);
  BOOST_TEST(run.notes.empty());
}

BOOST_AUTO_TEST_CASE(lines_in_another_order_or_with_spaces_are_read_too) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory,
                             "{\"loss\": 3.5, \"step\": 7, \"text\": \"a \\\" b\", \"event\": "
                             "\"step\"}\r\n");

  BOOST_TEST(run.steps.position(0).step == 7);
  BOOST_TEST(loss(run, 0) == 3.5);
}

BOOST_AUTO_TEST_CASE(a_torn_last_line_is_left_out_and_noted) {
  const TemporaryDirectory directory;
  const std::string whole = step_line(1, "2.5");
  const std::string next = step_line(2, "2.25");
  for (std::size_t length = 1; length + 2 < next.size(); ++length) {
    const RunRecord run = read(directory, whole + next.substr(0, length));

    BOOST_TEST(run.steps.rows() == 1);
    BOOST_TEST_REQUIRE(run.notes.size() == 1U);
    BOOST_TEST(run.notes[0].find("last line") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(damaged_lines_are_left_out_and_counted) {
  const TemporaryDirectory directory;
  const RunRecord run =
      read(directory, "garbage\n" + step_line(1, "2.5") + step_line(2, "NaN") + "[1,2]\n" +
                          step_line(1, "9") + R"({"event":"step","step":1e999})" + "\n" +
                          step_line(3, "0x10") + step_line(3, "-inf") + std::string("\0\xff\n", 3) +
                          step_line(4, "1"));

  BOOST_TEST(run.steps.rows() == 2);
  BOOST_TEST_REQUIRE(run.notes.size() == 2U);
  BOOST_TEST(run.notes[0].starts_with("7 damaged"));
  BOOST_TEST(run.notes[1].starts_with("1 lines"));
}

BOOST_AUTO_TEST_CASE(a_loss_of_nan_is_counted_and_leaves_a_gap) {
  const TemporaryDirectory directory;
  const RunRecord run =
      read(directory, step_line(1, "2.5") + step_line(2, "null") + step_line(3, "null"));

  BOOST_TEST(run.not_finite == 2);
  BOOST_TEST(run.first_not_finite == 2);
  BOOST_TEST(std::isnan(loss(run, 1)));
}

BOOST_AUTO_TEST_CASE(an_empty_run_has_no_figures) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory, "", "");
  const report::Figures figures = report::figures_of(run);

  BOOST_TEST(run.steps.rows() == 0);
  BOOST_TEST(figures.status == "no end recorded");
  BOOST_TEST(std::isnan(figures.best_top1));
  BOOST_CHECK_THROW(static_cast<void>(report::read_run(directory / "absent", 100)), Error);
}

BOOST_AUTO_TEST_CASE(hours_leave_out_the_time_between_jobs) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory,
                             R"({"event":"start","step":0,"samples":0,"time":1000}
{"event":"stop","step":10,"reason":"stopped on request","time":4600}
{"event":"resume","step":10,"samples":80,"time":90000,"changes":{"lr":["0.1","0.2"]}}
{"event":"step","step":11,"samples":88,"loss":1,"time":93600}
{"event":"checkpoint","step":10,"time":93600}
)");

  BOOST_TEST(run.steps.position(0).hours == 2.0);
  BOOST_TEST(run.last.step == 11);
  BOOST_TEST_REQUIRE(run.sessions.size() == 2U);
  BOOST_TEST(run.sessions[0].reason == "stopped on request");
  BOOST_TEST(!run.sessions[1].end);
  BOOST_TEST(report::figures_of(run).status == "no end recorded");
}

BOOST_AUTO_TEST_CASE(a_clock_that_is_set_back_takes_no_hours_away) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory, R"({"event":"start","step":0,"samples":0,"time":180000}
{"event":"step","step":1,"samples":8,"loss":1,"time":183600}
{"event":"step","step":2,"samples":16,"loss":1,"time":3600}
{"event":"step","step":3,"samples":24,"loss":1,"time":7200}
{"event":"stop","step":3,"reason":"stopped on request","time":7200}
{"event":"resume","step":3,"samples":24,"time":600}
{"event":"step","step":4,"samples":32,"loss":1,"time":4200}
)");

  BOOST_TEST(run.steps.position(0).hours == 1.0);
  BOOST_TEST(run.steps.position(1).hours == 1.0);
  BOOST_TEST(run.steps.position(2).hours == 2.0);
  BOOST_TEST(report::figures_of(run).hours == 3.0);
}

BOOST_AUTO_TEST_CASE(slow_ranks_are_summed_by_host_and_rank) {
  const TemporaryDirectory directory;
  const auto line = [](int rank, double factor) {
    return R"({"event":"straggler","step":9,"epoch":0,"host":"n1","rank":)" + std::to_string(rank) +
           R"(,"factor":)" + std::to_string(factor) + R"(,"seconds":{"data":{"p50":0.25}}})" + "\n";
  };
  const RunRecord run = read(directory, line(1, 2) + line(1, 3) + line(2, 1.5));

  BOOST_TEST_REQUIRE(run.slow_ranks.size() == 2U);
  BOOST_TEST(run.slow_ranks[0].reports == 2);
  BOOST_TEST(run.slow_ranks[0].worst == 3.0);
  BOOST_TEST(run.slow_ranks[0].data == 0.25);
}

BOOST_AUTO_TEST_CASE(the_best_validation_may_be_that_of_the_average) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory, R"({"event":"step","step":5,"samples":40,"loss":1}
{"event":"eval","step":5,"samples":7,"top1":0.5,"ema_top1":0.75}
{"event":"eval","step":9,"top1":0.625,"ema_top1":0.5}
)");
  const report::Figures figures = report::figures_of(run);

  BOOST_TEST(run.evaluations.position(0).samples == 40);
  BOOST_TEST(figures.best_top1 == 0.75);
  BOOST_TEST(figures.best_step == 5);
  BOOST_TEST(figures.top1 == 0.625);
}

BOOST_AUTO_TEST_CASE(a_figure_is_unknown_if_the_last_event_has_no_value) {
  const TemporaryDirectory directory;
  const RunRecord run = read(directory, R"({"event":"epoch","step":4,"samples":32,"loss":2})"
                                        "\n"
                                        R"({"event":"eval","step":4,"loss":1,"ema_top1":0.5})"
                                        "\n"
                                        R"({"event":"epoch","step":8,"samples":64,"loss":null})"
                                        "\n"
                                        R"({"event":"eval","step":8,"loss":null,"top1":0.1})"
                                        "\n");
  const report::Figures figures = report::figures_of(run);

  BOOST_TEST(std::isnan(figures.loss));
  BOOST_TEST(std::isnan(figures.ema_top1));
  BOOST_TEST(std::isnan(figures.train_loss));
  BOOST_TEST(figures.top1 == 0.1);
}

BOOST_AUTO_TEST_CASE(figures_count_the_steps_that_were_not_logged) {
  const TemporaryDirectory directory;
  const RunRecord run = read(
      directory, R"({"event":"start","step":0,"samples":0,"epoch_samples":100})"
                 "\n"
                 R"({"event":"step","step":50,"samples":200,"loss":3,"images_per_second":700})"
                 "\n"
                 R"({"event":"step","step":60,"samples":240,"loss":3,"images_per_second":100})"
                 "\n"
                 R"({"event":"step","step":70,"samples":280,"loss":3,"images_per_second":700})"
                 "\n"
                 R"({"event":"epoch","step":75,"samples":300,"loss":2.5,"images_per_second":9})"
                 "\n");
  const report::Figures figures = report::figures_of(run);

  BOOST_TEST(figures.epochs == 3);
  BOOST_TEST(figures.train_loss == 2.5);
  BOOST_TEST(figures.images_per_second == 700);
}

BOOST_AUTO_TEST_CASE(runs_are_grouped_by_options_except_the_seed) {
  const TemporaryDirectory directory;
  std::vector<RunRecord> runs;
  for (const char* config : {"lr=0.1\nseed=1\nrun-dir=a\n", "lr=0.2\nseed=1\nrun-dir=b\n",
                             "lr=0.1\nseed=2\nrun-dir=c\n"}) {
    runs.push_back(read(directory, "", config));
  }

  BOOST_TEST(report::differing_options(runs) == (std::vector<std::string>{"lr", "seed"}),
             boost::test_tools::per_element());
  BOOST_TEST(report::same_configuration(runs) == (std::vector<std::size_t>{0, 1, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(no_text_of_a_run_can_end_a_script_or_become_an_element) {
  const TemporaryDirectory directory;
  RunRecord run = read(directory,
                       R"({"event":"start","step":0,"model":"</script><script>alert(1)</script>"})"
                       "\n",
                       "data=</script><img src=x onerror=alert(1)><!--\n");
  run.name = "<img src=x>&\xff";
  const std::string page = report::page_of({&run, 1});

  BOOST_TEST(page.find("alert(1)</script>") == std::string::npos);
  BOOST_TEST(page.find("<img") == std::string::npos);
  BOOST_TEST(page.find("<title>&lt;img src=x&gt;&amp;") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(configurations_of_others_are_kept_up_to_a_limit) {
  const TemporaryDirectory directory;
  std::string config;
  for (int i = 0; i < 100'000; ++i) config += "=\n";

  const RunRecord run = read(directory, "", config);

  BOOST_TEST(run.options.size() == 2000u);
}

BOOST_AUTO_TEST_CASE(a_table_of_too_many_columns_is_refused) {
  const TemporaryDirectory directory;
  std::string metrics;
  for (int line = 0; line < 4; ++line) {
    metrics += "{\"event\":\"step\"";
    for (int i = 0; i < 4000; ++i) metrics += ",\"" + std::to_string(4000 * line + i) + "\":1";
    metrics += "}\n";
  }
  write_file(directory / "metrics.jsonl", metrics);
  std::ostringstream csv;

  BOOST_CHECK_EXCEPTION(static_cast<void>(report::write_metrics_csv(directory.path(), "", csv)),
                        Error,
                        [](const Error& error) { return error.status() == ExitStatus::bad_input; });
  BOOST_TEST(csv.str() == "");
}
