#include "terminal_screen.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

namespace lockstep::cli {

namespace {

constexpr std::array ending_signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::string_view leave_screen = "\x1b[m\x1b[?25h\x1b[?1049l";

/// Settings to restore; nullopt: standard input is no terminal.
std::optional<termios> keys;

/// Async-signal-safe: the program may be waiting for a file system that does not answer.
void restore_and_end(int signal) {
  [[maybe_unused]] const ssize_t ignored =
      ::write(STDOUT_FILENO, leave_screen.data(), leave_screen.size());
  if (keys) ::tcsetattr(STDIN_FILENO, TCSANOW, &*keys);
  if (signal == SIGINT) ::_exit(0);
  ::raise(signal);  // its action is the default one again, and follows when this function returns
}

}  // namespace

TerminalScreen::TerminalScreen() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int each : {SIGTSTP, SIGWINCH}) sigaddset(&taken, each);
  ::pthread_sigmask(SIG_BLOCK, &taken, &blocked_before_);
  signals_ = Descriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  termios settings{};
  if (::tcgetattr(STDIN_FILENO, &settings) == 0) keys = settings;
  enter();
}

TerminalScreen::~TerminalScreen() {
  leave();
  ::pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr);
}

void TerminalScreen::enter() {
  struct sigaction action {};
  action.sa_handler = restore_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int each : ending_signals) sigaddset(&action.sa_mask, each);
  for (std::size_t i = 0; i < ending_signals.size(); ++i) {
    ::sigaction(ending_signals[i], &action, &actions_before_[i]);
  }
  if (keys) {
    termios settings = *keys;
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    settings.c_cc[VMIN] = 1;
    settings.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  }
  write("\x1b[?1049h\x1b[?25l\x1b[2J");  // alternate screen, no cursor, empty
  shown_.clear();
}

void TerminalScreen::leave() {
  write(leave_screen);
  if (keys) ::tcsetattr(STDIN_FILENO, TCSANOW, &*keys);
  for (std::size_t i = 0; i < ending_signals.size(); ++i) {
    ::sigaction(ending_signals[i], &actions_before_[i], nullptr);
  }
}

void TerminalScreen::draw(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Clears the rest of the line; after the last one, of the screen.
    text += fmt::format("\x1b[{};1H{}\x1b[{}", i + 1, lines[i], i + 1 < lines.size() ? "K" : "J");
  }
  if (text == shown_) return;
  write(text);
  shown_ = text;
}

void TerminalScreen::write(std::string_view text) {
  for (std::size_t done = 0; done < text.size() && !lost_;) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      lost_ = true;
    }
  }
}

bool TerminalScreen::wait(std::chrono::milliseconds timeout) {
  if (lost_) return false;
  std::array<pollfd, 2> sources{pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  const nfds_t count = keys ? 2 : 1;
  if (::poll(sources.data(), count, static_cast<int>(timeout.count())) <= 0) return true;
  if (sources[0].revents != 0) {
    take_signal();
    return true;
  }
  char key = 0;
  // No key: the terminal is gone.
  return ::read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
}

void TerminalScreen::take_signal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGTSTP) {
    leave();
    ::raise(SIGSTOP);
    enter();
  }
  shown_.clear();
}

}  // namespace lockstep::cli
