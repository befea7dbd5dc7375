#include <boost/test/unit_test.hpp>

#include "lockstep/report/status_frame.hpp"

#include <algorithm>
#include <clocale>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

using namespace lockstep::report;

namespace {

/// The width of characters depends on it.
struct Utf8Locale {
  Utf8Locale() { BOOST_REQUIRE(std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr); }
};

RunStatus running_run() {
  RunStatus status;
  status.name = "resnet50-cosine";
  status.activity = Activity::running;
  status.model = "resnet50";
  status.hosts = "node1,node2";
  status.device = "gpu";
  status.version = "0.9.0";
  status.ranks = 8;
  status.nodes = 2;
  status.step = 15'012;
  status.steps = 112'590;
  status.epoch = 12.0;
  status.epochs = 90;
  status.seconds_left = 8045;
  status.loss = 2.25;
  status.lr = 0.0975;
  status.images_per_second = 9012;
  status.last_losses.resize(500);
  std::iota(status.last_losses.rbegin(), status.last_losses.rend(), 1.0);
  status.all_losses = status.last_losses;
  status.last_speeds = {9000, 9100, 8900};
  status.gradient_norm = 1.5;
  status.validation_top1 = 0.7421;
  status.validation_ema_top1 = 0.7432;
  status.validation_top1s = {0.1, 0.5, 0.7421};
  status.best_top1 = 0.75;
  status.best_step = 14'000;
  status.step_seconds = 0.4;
  status.phases = {0.02, 0.1, 0.2, 0.06, 0.02};
  status.phase_steps = 20;
  status.slowest = SlowRank{
      .host = "node2", .rank = 3, .reports = 4, .worst = 5.0, .last_epoch = 11, .last_factor = 1.8};
  status.planned_bytes = 9.5e8;
  status.peak_rss = 1.25e9;
  status.checkpoint = RunFiles::Checkpoint{.name = "step-00015000.h5"};
  status.checkpoint_step = 15'000;
  status.checkpoint_age = 65;
  status.save_seconds = 0.4;
  status.holder = "Slurm job 5 on node1";
  status.jobs = 3;
  status.restarts = {.count = 2, .last = "139 step-00000020.h5 2026-11-26T16:18:10 crash"};
  return status;
}

std::vector<std::string> text_of(const RunStatus& status, FrameSize size,
                                 Charset charset = Charset::unicode) {
  std::vector<std::string> lines;
  for (const StyledLine& line : frame_of(status, size, charset)) {
    lines.push_back(render(line, Colors::no));
  }
  return lines;
}

/// The line that begins with `label`; empty if there is none.
std::string line_of(const std::vector<std::string>& lines, const std::string& label) {
  const auto found =
      std::ranges::find_if(lines, [&](const std::string& line) { return line.starts_with(label); });
  return found == lines.end() ? "" : *found;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(Utf8Locale);

BOOST_AUTO_TEST_CASE(a_spark_line_goes_from_the_least_to_the_greatest_value) {
  const std::vector<double> values{0, 1, 2, 3, 4, 5, 6, 7};

  BOOST_TEST(spark_lines(values, 1, Charset::unicode).front() == "▁▂▃▄▅▆▇█");
  BOOST_TEST(spark_lines(values, 1, Charset::ascii).front() == "_.:-=+*#");
}

BOOST_AUTO_TEST_CASE(a_higher_chart_fills_its_lines_from_below) {
  const std::vector<double> values{0, 7, 15};

  BOOST_TEST(spark_lines(values, 2, Charset::unicode) == (std::vector<std::string>{"  █", "▁██"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_finite_is_marked) {
  const std::vector<double> values{1, NAN, 2, INFINITY};

  BOOST_TEST(spark_lines(values, 1, Charset::unicode).front() == "▁x█x");
  BOOST_TEST(spark_lines(std::vector<double>{NAN}, 2, Charset::ascii) ==
                 (std::vector<std::string>{" ", "x"}),
             boost::test_tools::per_element());
  BOOST_TEST(spark_lines(std::vector<double>{3, 3}, 1, Charset::unicode).front() == "▅▅");
}

BOOST_AUTO_TEST_CASE(more_values_than_columns_become_means) {
  const std::vector<double> means = resample(std::vector<double>{1, 3, 5, NAN, NAN, NAN}, 3);

  BOOST_TEST_REQUIRE(means.size() == 3U);
  BOOST_TEST(means[0] == 2);
  BOOST_TEST(means[1] == 5);
  BOOST_TEST(std::isnan(means[2]));
  BOOST_TEST(resample(means, 100).size() == 3U);
}

BOOST_AUTO_TEST_CASE(text_of_a_run_cannot_control_the_terminal) {
  BOOST_TEST(printable("a\x1b]0;x\x07\n\x7f", Charset::unicode) == "a?]0;x???");
  BOOST_TEST(printable("\xc2\x9b"
                       "31m",
                       Charset::unicode) == "?31m");  // CSI as one character
  BOOST_TEST(printable("\xe2\x80\xae"
                       "abc",
                       Charset::unicode) == "?abc");  // right to left
  BOOST_TEST(printable("\xff\xc3", Charset::unicode) == "??");
  BOOST_TEST(printable("é猫", Charset::unicode) == "é猫");
  BOOST_TEST(printable("é猫", Charset::ascii) == "??");
  BOOST_TEST(columns_of("é猫") == 3U);
  BOOST_TEST(cut("猫猫", 3) == "猫");
}

BOOST_AUTO_TEST_CASE(every_frame_fits_its_terminal) {
  RunStatus damaged = running_run();
  damaged.phases = {1e17, -1e17, 0.1, -0.1, 0.4};
  for (const RunStatus& status : {running_run(), damaged}) {
    for (const Charset charset : {Charset::unicode, Charset::ascii}) {
      for (std::size_t columns = 1; columns < 150; columns += columns < 20 ? 1 : 7) {
        for (std::size_t rows = 1; rows < 60; ++rows) {
          const auto frame = frame_of(status, {.columns = columns, .rows = rows}, charset);
          BOOST_TEST_REQUIRE(frame.size() <= rows);
          for (const StyledLine& line : frame) BOOST_TEST_REQUIRE(columns_of(line) <= columns);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_small_frame_has_the_most_important_lines) {
  const std::vector<std::string> lines = text_of(running_run(), {.columns = 40, .rows = 6});

  BOOST_TEST_REQUIRE(lines.size() == 6U);
  BOOST_TEST(lines[0] == "resnet50-cosine                  running");
  BOOST_TEST(lines[1].starts_with("epoch 13/90 ["));
  BOOST_TEST(lines[2] == "step 15,012 of 112,590, 2:14:05 left");
  BOOST_TEST(lines[3].starts_with("loss         2.2500  "));
  BOOST_TEST(line_of(lines, "slowest").empty());
}

BOOST_AUTO_TEST_CASE(a_large_frame_has_all_lines_and_higher_charts) {
  const std::vector<std::string> lines = text_of(running_run(), {.columns = 120, .rows = 60});

  BOOST_TEST(lines[1] == "resnet50, 8 ranks on 2 nodes (node1,node2), gpu, lockstep 0.9.0");
  BOOST_TEST(contains(line_of(lines, "top-1"), "74.21 %"));
  BOOST_TEST(line_of(lines, "  best").ends_with("75.00 %  step 14,000, EMA top-1 74.32 %"));
  BOOST_TEST(line_of(lines, "lr").ends_with("0.0975  gradient norm 1.5"));
  BOOST_TEST(contains(line_of(lines, "images/s"), "9,012"));
  BOOST_TEST(line_of(lines, "slowest") ==
             "slowest    rank 3 (node2), 1.8 times the median rank's own time a step, in epoch 12, "
             "4 reports in all");
  BOOST_TEST(line_of(lines, "memory") == "memory     950.0 MB planned, peak of rank 0 1.2 GB");
  BOOST_TEST(line_of(lines, "saved") == "saved      step 15,000, 1:05 ago, written in 400.0 ms");
  BOOST_TEST(line_of(lines, "job") == "job        Slurm job 5 on node1; 3 jobs so far");
  BOOST_TEST(contains(line_of(lines, "restarts"), "2, the last after status 139"));
  const auto loss =
      std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("loss"); });
  BOOST_TEST((loss + 5)->starts_with("  1 to 97  "));
}

BOOST_AUTO_TEST_CASE(the_phases_of_a_step_are_stacked) {
  const std::vector<std::string> lines =
      text_of(running_run(), {.columns = 63, .rows = 0}, Charset::ascii);

  BOOST_TEST(line_of(lines, "step   ") == "step         400.0 ms  " + std::string(2, 'd') +
                                              std::string(10, 'f') + std::string(20, 'b') +
                                              std::string(6, 'c') + std::string(2, 'o'));
  BOOST_TEST(line_of(lines, "data") == "data5 fwd25 bwd50 comm15 opt5 %");
}

BOOST_AUTO_TEST_CASE(unknown_values_have_no_lines) {
  RunStatus status;
  status.name = "new";
  const std::vector<std::string> lines = text_of(status, {.columns = 40, .rows = 0});

  BOOST_TEST(lines[0] == "new                        no events yet");
  for (const std::string& line : lines) BOOST_TEST(!contains(line, "nan"));
  BOOST_TEST(line_of(lines, "loss").empty());
}

BOOST_AUTO_TEST_CASE(hostile_text_is_shown_harmlessly_in_every_line) {
  RunStatus status = running_run();
  const std::string evil =
      "\x1b[2J\xc2\x9b"
      "1m\r\n";
  for (std::string* text :
       {&status.name, &status.model, &status.hosts, &status.device, &status.version, &status.holder,
        &status.restarts.last, &status.slowest->host, &status.checkpoint->name, &status.reason}) {
    *text = evil;
  }
  status.checkpoint_step = NAN;
  status.notes = {evil};
  for (const Activity activity : {Activity::running, Activity::failed, Activity::stopped}) {
    status.activity = activity;
    for (const Charset charset : {Charset::unicode, Charset::ascii}) {
      for (const std::string& line : text_of(status, {.columns = 120, .rows = 0}, charset)) {
        BOOST_TEST(std::ranges::none_of(line, [](char each) { return each >= 0 && each < 0x20; }));
        BOOST_TEST(!contains(line, "\xc2\x9b"));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_silent_run_says_for_how_long) {
  RunStatus status = running_run();
  status.activity = Activity::silent;
  status.silent = 95;
  status.reason = "longest earlier pause: 2.0 s";
  const std::vector<std::string> lines = text_of(status, {.columns = 60, .rows = 0});

  BOOST_TEST(lines[0].ends_with("silent for 1:35"));
  BOOST_TEST(lines[1] == status.reason);
}

BOOST_AUTO_TEST_CASE(colors_are_the_only_escape_sequences) {
  const StyledLine line{{"a", Style::bold}, {"b"}, {"c", Style::bad}};

  BOOST_TEST(render(line, Colors::no) == "abc");
  BOOST_TEST(render(line, Colors::yes) == "\x1b[1ma\x1b[mb\x1b[31mc\x1b[m");
}
