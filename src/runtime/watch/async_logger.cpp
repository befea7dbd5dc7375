#include "async_logger.hpp"

#include "lockstep/core/escape.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace lockstep::watch {
namespace {

/// Writes with one call, so that lines of different ranks do not mix.
void print_line(const char* kind, const std::string& text) {
  const std::string line = fmt::format("lockstep: {}: {}\n", kind, escape_line(text));
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

AsyncLogger::AsyncLogger(std::vector<int> cores)
    : thread_([this, cores = std::move(cores)](const std::stop_token& stop) {
        become_helper_thread(cores);
        work(stop);
      }) {}

void AsyncLogger::log_to(Log log) {
  const std::lock_guard lock(mutex_);
  log_ = std::move(log);
}

void AsyncLogger::log(std::string line) {
  add({.kind = Kind::log, .text = std::move(line)});
}

void AsyncLogger::print(std::string line) {
  add({.kind = Kind::error, .text = std::move(line)});
}

void AsyncLogger::warn(std::string line) {
  add({.kind = Kind::warning, .text = std::move(line)});
}

void AsyncLogger::add(Line line) {
  {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  changed_.notify_all();
}

void AsyncLogger::wait(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [this] { return lines_.empty(); });
}

void AsyncLogger::write(const Line& line, const Log& log) {
  switch (line.kind) {
    case Kind::error:
      return print_line("error", line.text);
    case Kind::warning:
      return print_line("warning", line.text);
    case Kind::log:
      if (log) log("watchdog: " + line.text);
  }
}

void AsyncLogger::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !lines_.empty(); })) {
    const Line line = lines_.front();
    const Log log = log_;
    lock.unlock();
    try {
      write(line, log);
    } catch (const std::exception&) {
      // A log that cannot be written must not end the job.
    }
    lock.lock();
    lines_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace lockstep::watch
