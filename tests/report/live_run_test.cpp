#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/report/live_run.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using report::Activity;
using report::LiveRun;
using report::RunStatus;
using test::TemporaryDirectory;
using test::write_file;

namespace {

constexpr double begin = 1'764'000'000;

std::string start_line(const std::string& kind = "start", int step = 0, double time = begin) {
  return R"({"event":")" + kind + R"(","step":)" + std::to_string(step) +
         R"(,"epoch":0,"samples":)" + std::to_string(8 * step) +
         R"(,"model":"mlp","ranks":2,"global_batch":8,"epoch_samples":80,"nodes":1,"hosts":"n1",)" +
         R"("memory":{"activations":100,"parameters":20},"time":)" + std::to_string(time) + "}\n";
}

std::string step_line(int step, double seconds = -1) {
  const double time = begin + (seconds < 0 ? step : seconds);
  return R"({"event":"step","step":)" + std::to_string(step) + R"(,"samples":)" +
         std::to_string(8 * step) + R"(,"loss":)" + std::to_string(1.0 / step) +
         R"(,"seconds":{"data":0.5,"forward":1,"backward":2,"communication":0,"optimizer":0.25})" +
         R"(,"time":)" + std::to_string(time) + "}\n";
}

std::string stop_line(int step, const std::string& reason) {
  return R"({"event":"stop","step":)" + std::to_string(step) + R"(,"reason":")" + reason +
         R"(","time":)" + std::to_string(begin + step) + "}\n";
}

std::string straggler_line(int epoch, int rank, double factor) {
  return R"({"event":"straggler","step":1,"host":"n1","epoch":)" + std::to_string(epoch) +
         R"(,"rank":)" + std::to_string(rank) + R"(,"factor":)" + std::to_string(factor) + "}\n";
}

/// A run directory, and the view of it.
struct Watched {
  explicit Watched(const std::string& metrics) {
    write_file(directory / "metrics.jsonl", metrics);
    write_file(directory / "config.ini", "model=mlp\nepochs=5\nmax-steps=0\n");
    live.emplace(directory.path());
  }
  void append(const std::string& text) const {
    std::ofstream(directory / "metrics.jsonl", std::ios::app | std::ios::binary) << text;
  }
  void write_lock(const std::string& text, double heartbeat) const {
    write_file(directory / "lock", text);
    const timespec time{.tv_sec = static_cast<time_t>(heartbeat), .tv_nsec = 0};
    const std::array times{time, time};
    BOOST_REQUIRE(::utimensat(AT_FDCWD, (directory / "lock").c_str(), times.data(), 0) == 0);
  }

  TemporaryDirectory directory;
  std::optional<LiveRun> live;
};

const std::string held = R"({"job":"Slurm job 5","host":"n1"})";

}  // namespace

BOOST_AUTO_TEST_CASE(lines_are_read_as_they_are_completed) {
  Watched run(start_line() + step_line(1));
  BOOST_TEST(run.live->update(begin + 1).step == 1);

  const std::string next = step_line(2);
  run.append(next.substr(0, 20));
  BOOST_TEST(run.live->update(begin + 2).step == 1);
  BOOST_TEST(run.live->update(begin + 2).notes.empty());
  run.append(next.substr(20) + step_line(3));
  const RunStatus status = run.live->update(begin + 3);

  BOOST_TEST(status.step == 3);
  BOOST_TEST(status.last_losses.size() == 3U);
  BOOST_TEST(status.notes.empty());
}

BOOST_AUTO_TEST_CASE(a_truncated_file_is_read_again) {
  const std::string first = start_line() + step_line(1) + step_line(2);
  Watched run(first + step_line(3));
  BOOST_TEST(run.live->update(begin + 3).step == 3);

  write_file(run.directory / "metrics.jsonl", first);
  const RunStatus status = run.live->update(begin + 4);

  BOOST_TEST(status.step == 2);
  BOOST_TEST(status.last_losses == (std::vector<double>{1, 0.5}), boost::test_tools::per_element());
  BOOST_TEST(status.notes.empty());
}

BOOST_AUTO_TEST_CASE(a_file_replaced_by_a_longer_one_is_read_again) {
  const std::string first = start_line() + step_line(1) + step_line(2);
  Watched run(first + step_line(3));
  BOOST_TEST(run.live->update(begin + 3).step == 3);

  const std::string path = run.directory / "metrics.jsonl";
  write_file(path + ".new",
             first + start_line("resume", 2, begin + 10) + step_line(3, 12) + step_line(4, 13));
  std::filesystem::rename(path + ".new", path);
  const RunStatus status = run.live->update(begin + 14);

  BOOST_TEST(status.step == 4);
  BOOST_TEST(status.jobs == 2);
  BOOST_TEST(status.last_losses == (std::vector<double>{1, 0.5, 0.333333, 0.25}),
             boost::test_tools::per_element());
  BOOST_TEST(status.notes.empty());
}

BOOST_AUTO_TEST_CASE(a_run_that_vanishes_keeps_its_state_with_a_note) {
  Watched run(start_line() + step_line(1));
  static_cast<void>(run.live->update(begin + 1));
  std::filesystem::remove(run.directory / "metrics.jsonl");
  const RunStatus status = run.live->update(begin + 2);

  BOOST_TEST(status.step == 1);
  BOOST_TEST_REQUIRE(status.notes.size() == 1U);
  BOOST_TEST(status.notes[0].find("cannot read") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(progress_counts_steps_and_epochs_of_the_whole_run) {
  Watched run(start_line() + step_line(1) + step_line(11) + step_line(21));
  const RunStatus status = run.live->update(begin + 21);

  BOOST_TEST(status.epochs == 5);
  BOOST_TEST(status.epoch == 2.1);
  BOOST_TEST(status.steps == 50);
  BOOST_TEST(status.seconds_left == 29);
  BOOST_TEST(run.live->update(begin + 23).seconds_left == 27);
  BOOST_TEST(status.step_seconds == 3.75);
  BOOST_TEST(status.planned_bytes == 120);
}

BOOST_AUTO_TEST_CASE(the_time_left_and_of_phases_are_of_the_last_job) {
  Watched run(start_line() + step_line(1) + step_line(2) + start_line("resume", 2, begin + 10));
  BOOST_TEST(run.live->update(begin + 10).phase_steps == 2);
  BOOST_TEST(std::isnan(run.live->update(begin + 10).seconds_left));

  run.append(step_line(3, 11) + step_line(4, 13) + step_line(5, 15));
  const RunStatus status = run.live->update(begin + 15);
  BOOST_TEST(status.phase_steps == 3);
  BOOST_TEST(status.seconds_left == 90, boost::test_tools::tolerance(1e-9));

  for (int step = 6; step <= 30; ++step) run.append(step_line(step, 2 * step + 5));
  BOOST_TEST(run.live->update(begin + 65).phase_steps == 20);
}

BOOST_AUTO_TEST_CASE(max_steps_end_a_run_earlier) {
  Watched run(start_line() + step_line(1));
  write_file(run.directory / "config.ini", "epochs=5\nmax-steps=25\n");
  const RunStatus status = run.live->update(begin + 1);

  BOOST_TEST(status.steps == 25);
  BOOST_TEST(status.epochs == 3);
}

BOOST_AUTO_TEST_CASE(a_run_without_events_for_long_is_silent) {
  Watched run(start_line() + step_line(1) + step_line(2) + step_line(12) + step_line(13));
  BOOST_TEST((run.live->update(begin + 14).activity == Activity::running));
  // The longest pause was ten seconds.
  BOOST_TEST((run.live->update(begin + 32).activity == Activity::running));
  const RunStatus status = run.live->update(begin + 113);

  BOOST_TEST((status.activity == Activity::silent));
  BOOST_TEST(status.silent == 100);
  BOOST_TEST(std::isnan(status.seconds_left));
  run.append(step_line(14, 114));
  BOOST_TEST((run.live->update(begin + 114).activity == Activity::running));
}

BOOST_AUTO_TEST_CASE(a_clock_that_is_ahead_does_not_hide_silence) {
  Watched run(start_line() + step_line(1));
  static_cast<void>(run.live->update(begin + 1));
  run.append(step_line(2, 5000));
  static_cast<void>(run.live->update(begin + 2));
  BOOST_TEST(run.live->update(begin + 12).silent == 10);
}

BOOST_AUTO_TEST_CASE(the_last_event_tells_how_a_run_ended) {
  for (const auto& [reason, activity] :
       {std::pair{"finished", Activity::finished}, std::pair{"diverged", Activity::failed},
        std::pair{"stopped on request", Activity::stopped},
        std::pair{"stopped before the time limit", Activity::stopped}}) {
    Watched run(start_line() + step_line(1) + stop_line(1, reason));
    const RunStatus status = run.live->update(begin + 1000);
    BOOST_TEST((status.activity == activity));
    BOOST_TEST(status.reason == reason);
    run.append(start_line("resume", 1, begin + 1001));
    BOOST_TEST((run.live->update(begin + 1001).activity == Activity::running));
  }
}

BOOST_AUTO_TEST_CASE(the_lock_tells_whether_a_job_is_alive) {
  Watched run(start_line() + step_line(1) + step_line(2));
  run.write_lock(held, begin + 95);
  const RunStatus silent = run.live->update(begin + 100);
  BOOST_TEST((silent.activity == Activity::silent));
  BOOST_TEST(silent.holder == "Slurm job 5 on n1");

  const RunStatus dead = run.live->update(begin + 300);
  BOOST_TEST((dead.activity == Activity::failed));
  BOOST_TEST(dead.reason == "no heartbeat from Slurm job 5 on n1 for 3:25");

  run.write_lock("", begin + 3);
  const RunStatus ended = run.live->update(begin + 3);
  BOOST_TEST((ended.activity == Activity::failed));
  BOOST_TEST(ended.reason.find("without a stop event") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_host_whose_clock_is_behind_is_alive_while_its_heartbeats_come) {
  Watched run(start_line() + step_line(1) + step_line(2));
  for (int i = 0; i < 5; ++i) {
    run.write_lock(held, begin - 5000 + 20 * i);
    static_cast<void>(run.live->update(begin + 100 + 20 * i));
  }
  BOOST_TEST((run.live->update(begin + 190).activity == Activity::silent));
  const RunStatus dead = run.live->update(begin + 305);
  BOOST_TEST((dead.activity == Activity::failed));
  BOOST_TEST(dead.reason == "no heartbeat from Slurm job 5 on n1 for 2:05");
}

BOOST_AUTO_TEST_CASE(a_heartbeat_of_a_clock_that_is_ahead_does_not_hide_a_dead_job) {
  Watched run(start_line() + step_line(1) + step_line(2));
  run.write_lock(held, begin + 5000);
  static_cast<void>(run.live->update(begin + 100));
  BOOST_TEST((run.live->update(begin + 225).activity == Activity::failed));
}

BOOST_AUTO_TEST_CASE(a_torn_lock_is_held_by_an_unknown_job) {
  Watched run(start_line() + step_line(1));
  run.write_lock(R"({"job":"Slu)", begin);
  BOOST_TEST(run.live->update(begin + 1).holder == "another job on an unknown host");
}

BOOST_AUTO_TEST_CASE(the_slowest_rank_is_that_of_the_last_epoch_with_its_factor_there) {
  Watched run(start_line() + straggler_line(1, 0, 5.0) + straggler_line(12, 0, 1.6) +
              straggler_line(12, 1, 3.0));
  const RunStatus status = run.live->update(begin + 1);

  BOOST_TEST_REQUIRE(status.slowest.has_value());
  BOOST_TEST(status.slowest->rank == 1);
  const auto slowest = report::status_json(status)["slowest"];
  BOOST_TEST(slowest["rank"] == 1);
  BOOST_TEST(slowest["factor"] == 3.0);
  BOOST_TEST(slowest["epoch"] == 12);

  run.append(straggler_line(13, 0, 1.7));
  const RunStatus later = run.live->update(begin + 2);
  BOOST_TEST(report::status_json(later)["slowest"]["rank"] == 0);
  BOOST_TEST(report::status_json(later)["slowest"]["factor"] == 1.7);
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_read_become_notes) {
  Watched run(start_line() + step_line(1));
  std::filesystem::remove(run.directory / "config.ini");
  std::filesystem::create_symlink("config.ini", run.directory / "config.ini");
  std::filesystem::create_symlink("/proc/self/mem", run.directory / "restarts");
  const RunStatus status = run.live->update(begin + 1);

  BOOST_TEST(status.step == 1);
  BOOST_TEST_REQUIRE(status.notes.size() == 2U);
  for (const std::string& note : status.notes) {
    BOOST_TEST(note.find("is a link (a file is expected)") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_deeply_nested_line_is_damaged) {
  constexpr std::size_t depth = 1'000'000;
  const std::string nested = std::string(depth, '[') + std::string(depth, ']');
  Watched run(start_line() + step_line(1) + R"({"event" :"step","step":2,"loss":)" + nested +
              "}\n" + R"({"event" :"step","step":3,"loss":0.5})" + "\n");
  const RunStatus status = run.live->update(begin + 1);

  BOOST_TEST(status.last_losses == (std::vector<double>{1, 0.5}), boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(status.notes.size() == 1U);
  BOOST_TEST(status.notes[0].starts_with("1 damaged"));
}

BOOST_AUTO_TEST_CASE(the_last_of_very_many_jobs_is_kept) {
  std::string metrics = start_line() + stop_line(0, "stopped on request");
  for (int i = 1; i < 1001; ++i) {
    metrics += start_line("resume", i) + stop_line(i, "stopped on request");
  }
  Watched run(metrics + start_line("resume", 1001) + step_line(1002));
  const RunStatus status = run.live->update(begin + 1002);

  BOOST_TEST((status.activity == Activity::running));
  BOOST_TEST_REQUIRE(status.notes.size() == 1U);
  BOOST_TEST(status.notes[0] == "2 more jobs are left out");
}

BOOST_AUTO_TEST_CASE(checkpoints_and_restarts_come_from_their_files) {
  Watched run(start_line() + step_line(1) +
              R"({"event":"checkpoint","step":1,"seconds":{"save":0.5},"time":1764000001})" + "\n");
  std::filesystem::create_directory(run.directory / "checkpoints");
  write_file(run.directory / "checkpoints/step-00000001.h5", "");
  std::filesystem::create_symlink("step-00000001.h5", run.directory / "checkpoints/latest");
  write_file(run.directory / "restarts",
             "5 75 step-00000222.h5 2026-11-27T02:22:51\n5 139 step-00000300.h5 now crash\n");
  const RunStatus status = run.live->update(begin + 2);

  BOOST_TEST(status.checkpoint_step == 1);
  BOOST_TEST(status.save_seconds == 0.5);
  BOOST_TEST(status.restarts.count == 2);
  BOOST_TEST(status.restarts.last == "139 step-00000300.h5 now crash");
}

BOOST_AUTO_TEST_CASE(an_empty_run_has_no_state_but_is_no_error) {
  Watched run("");
  const RunStatus status = run.live->update(begin);

  BOOST_TEST((status.activity == Activity::empty));
  BOOST_TEST(report::status_json(status)["loss"].is_null());
  BOOST_CHECK_THROW(LiveRun(run.directory / "absent"), Error);
}
