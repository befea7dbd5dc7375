// Attacks on a rank's watchdog over loopback, by processes that lack the job's secret
// ("strangers").
#include <boost/test/unit_test.hpp>

#include "watch_fixture.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;
using namespace lockstep::test;
using State = RankReport::State;
using Kind = Tree::Event::Kind;

namespace {

const Bytes32 secret{7};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Descriptor connect_to(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto address = *loopback(port);
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size);
  return socket;
}

std::string frame(MessageKind kind, std::string_view payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  return std::string(raw_bytes(size)).append(1, static_cast<char>(kind)).append(payload);
}

void send(const Descriptor& to, const std::string& bytes) {
  static_cast<void>(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

bool has_ended(const Descriptor& connection) {
  std::array<char, 4096> ignored;
  ssize_t count = 1;
  while (count > 0) count = ::recv(connection.get(), ignored.data(), ignored.size(), 0);
  return count == 0 || errno != EAGAIN;
}

/// Rank 0 of two ranks; rank 1 is not connected yet.
class Target final {
 public:
  Target() : Target(Listener(loopback()), Listener(loopback())) {}

  /// Exchanges messages until `condition` holds; false after `longest`.
  template <typename Condition>
  [[nodiscard]] bool until(Condition&& condition, std::chrono::seconds longest = 30s) {
    for (const auto end = std::chrono::steady_clock::now() + longest;
         std::chrono::steady_clock::now() < end;) {
      exchange(20ms);
      if (condition()) return true;
    }
    return false;
  }
  void exchange(std::chrono::milliseconds longest) {
    for (auto& event : parent_.exchange(wake_.get(), longest, clock_)) {
      events.push_back(std::move(event));
    }
    if (!child_) return;
    child_->publish(running(1), now());
    static_cast<void>(child_->exchange(wake_.get(), 0ms, clock_));
  }
  /// Starts rank 1, which rank 0 waits for.
  void begin_child() {
    child_.emplace(TreeOptions{.rank = 1,
                               .size = 2,
                               .parents = {-1, 0},
                               .secret = secret,
                               .parent = {.addresses = {"127.0.0.1"}, .port = port}},
                   std::move(*childs_listener_));
  }
  [[nodiscard]] bool child_is_in() const {
    return parent_.reports(now())[1].state == State::running;
  }
  [[nodiscard]] Tree& tree() { return parent_; }
  [[nodiscard]] const Descriptor& wake() const { return wake_; }

  int port;
  std::vector<Tree::Event> events;

 private:
  Target(Listener parents, Listener childs)
      : port(parents.port()),
        childs_listener_(std::move(childs)),
        parent_({.rank = 0,
                 .size = 2,
                 .parents = {-1, 0},
                 .secret = secret,
                 .child_ports = {{1, childs_listener_->port()}}},
                std::move(parents)) {}
  [[nodiscard]] double now() const {
    clock_.look();
    return clock_.now();
  }

  mutable WatchClock clock_{60};
  Descriptor wake_{::eventfd(0, EFD_CLOEXEC)};
  std::optional<Listener> childs_listener_;
  Tree parent_;
  std::optional<Tree> child_;
};

/// A process that keeps `size` connections open, says `text` on each, and replaces each one that
/// ends, after a pause of `pause`.
class Crowd final {
 public:
  Crowd(int port, std::size_t size, const std::string& text = "",
        std::chrono::microseconds pause = 20ms)
      : process_(::fork()) {
    if (process_ != 0) return;
    ::alarm(120);  // ends the process if the test does not
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    std::vector<Descriptor> all(size);
    while (true) {
      for (Descriptor& each : all) {
        if (each && !has_ended(each)) continue;
        each = connect_to(port);
        send(each, text);
      }
      std::this_thread::sleep_for(pause);
    }
  }
  ~Crowd() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  pid_t process_;
};

/// Lowers this process's limit of open files for the lifetime of the object.
class FileLimit final {
 public:
  explicit FileLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{.rlim_cur = limit, .rlim_max = before_.rlim_max};
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

std::vector<Descriptor> open_files(std::size_t count) {
  std::vector<Descriptor> files;
  for (std::size_t i = 0; i < count; ++i) {
    files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  std::erase_if(files, [](const Descriptor& file) { return !file; });
  return files;
}

}  // namespace

BOOST_AUTO_TEST_CASE(large_messages_of_strangers_take_no_memory) {
  Target target;
  const std::uint32_t announced = 60U << 20;
  const std::string head = std::string(raw_bytes(announced)) + '\1';
  const std::string chunk(64 << 10, 'x');
  std::vector<Descriptor> strangers(120);
  for (Descriptor& each : strangers) {
    each = connect_to(target.port);
    send(each, head);
  }
  target.exchange(10ms);
  const std::size_t before = resident_bytes();

  for (int i = 0; i < 30; ++i) {
    for (const Descriptor& each : strangers) send(each, chunk);
    target.exchange(10ms);
  }

  BOOST_TEST(resident_bytes() < before + (std::size_t{16} << 20));
  BOOST_TEST(target.until([&] {
    return std::ranges::all_of(strangers, [](const auto& each) { return has_ended(each); });
  }));
}

BOOST_AUTO_TEST_CASE(an_incomplete_hello_ends_the_connection_after_some_seconds) {
  Target target;
  const Descriptor stranger = connect_to(target.port);
  const auto begin = std::chrono::steady_clock::now();
  send(stranger, frame(MessageKind::hello, "").substr(0, 3));

  BOOST_TEST(target.until([&] { return has_ended(stranger); }));

  BOOST_TEST((std::chrono::steady_clock::now() - begin > 4s));
}

BOOST_AUTO_TEST_CASE(few_strangers_are_accepted_at_a_time) {
  Target target;
  std::vector<Descriptor> strangers(200);
  for (Descriptor& each : strangers) each = connect_to(target.port);
  const std::ptrdiff_t before = open_descriptors();
  std::ptrdiff_t most = 0;
  for (int i = 0; i < 20; ++i) {
    target.exchange(20ms);
    most = std::max(most, open_descriptors() - before);
  }

  BOOST_TEST(most > 0);
  BOOST_TEST(most <= 64);
  BOOST_TEST(std::ranges::count_if(strangers, has_ended) >= 200 - 64);
}

BOOST_AUTO_TEST_CASE(more_strangers_than_allowed_open_files_do_not_starve_the_child) {
  Target target;
  const FileLimit limit(64);
  const Crowd crowd(target.port, 100);
  for (const auto end = std::chrono::steady_clock::now() + 2s;
       std::chrono::steady_clock::now() < end;) {
    target.exchange(100ms);
  }

  BOOST_TEST(open_files(20).size() == 20U);
  target.begin_child();
  BOOST_TEST(target.until([&] { return target.child_is_in(); }, 60s));
}

BOOST_AUTO_TEST_CASE(a_rank_that_may_open_no_more_files_waits_before_it_accepts_again) {
  Target target;
  const Crowd crowd(target.port, 100);
  const FileLimit limit(64);
  const std::vector<Descriptor> others = open_files(40);
  int exchanges = 0;
  for (const auto end = std::chrono::steady_clock::now() + 2s;
       std::chrono::steady_clock::now() < end; ++exchanges) {
    target.exchange(100ms);
  }

  BOOST_TEST(exchanges < 1000);
}

BOOST_AUTO_TEST_CASE(thousands_of_strangers_do_not_keep_the_child_out) {
  for (const std::string& text : {std::string(), frame(MessageKind::hello, "").substr(0, 3),
                                  frame(MessageKind::hello, std::string(sizeof(Hello), 'x'))}) {
    Target target;
    const Crowd crowd(target.port, 3000, text, 0us);
    target.exchange(20ms);
    for (const auto end = std::chrono::steady_clock::now() + 1s;
         std::chrono::steady_clock::now() < end;) {
      target.exchange(20ms);
    }

    target.begin_child();
    BOOST_TEST(target.until([&] { return target.child_is_in(); }, 60s));
    BOOST_TEST(target.events.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_rank_near_its_limit_of_open_files_neither_accepts_nor_spins) {
  Target target;
  const Descriptor next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor stranger = connect_to(target.port);
  {
    const FileLimit limit(static_cast<rlim_t>(next.get()) + 20);
    BOOST_TEST(exchanges_in(1s, target.tree(), target.wake()) < 50);
    char challenge = 0;
    BOOST_TEST(::recv(stranger.get(), &challenge, 1, MSG_PEEK) == -1);
    const FileLimit none(static_cast<rlim_t>(next.get()));
    BOOST_TEST(exchanges_in(1s, target.tree(), target.wake()) < 50);
  }

  target.begin_child();
  BOOST_TEST(target.until([&] { return target.child_is_in(); }));
}

BOOST_AUTO_TEST_CASE(messages_of_strangers_have_no_effect) {
  Target target;
  target.begin_child();
  BOOST_REQUIRE(target.until([&] { return target.child_is_in(); }));
  const std::string loss =
      frame(MessageKind::loss, to_payload({.rank = 1, .text = "rank 1 is gone, says a stranger"})) +
      std::string(sizeof(Bytes32), 'x');
  const Session session{.child = 1, .parent = 0, .child_nonce = {1}, .parent_nonce = {2}};
  const Hello hello{.child = 1,
                    .parent = 0,
                    .nonce = session.child_nonce,
                    .proof = derive({8}, Purpose::child_proof, session)};
  const Knock knock{.child = 1, .parent = 0, .count = 9, .proof = knock_proof({8}, 1, 0, 9)};
  std::vector<Descriptor> strangers;
  for (const std::string& text :
       {loss, frame(MessageKind::hello, raw_bytes(hello)) + loss,
        frame(MessageKind::hello, raw_bytes(hello).substr(1)) + loss,
        frame(MessageKind::knock, raw_bytes(knock)) + frame(MessageKind::hello, raw_bytes(hello)),
        frame(MessageKind::welcome, "") + loss, frame(MessageKind::goodbye, ""),
        frame(MessageKind::disabled, "stop")}) {
    strangers.push_back(connect_to(target.port));
    send(strangers.back(), text);
  }

  bool undisturbed = true;
  BOOST_TEST(target.until([&] {
    undisturbed = undisturbed && target.child_is_in();
    return std::ranges::all_of(strangers, [](const auto& each) { return has_ended(each); });
  }));

  BOOST_TEST(target.events.empty());
  BOOST_TEST(undisturbed);
}

BOOST_AUTO_TEST_CASE(a_replayed_hello_is_rejected) {
  Target target;
  // A man in the middle, who forwards the messages of both sides.
  const Listener between(loopback());
  Uplink child({.rank = 1,
                .parent = 0,
                .secret = secret,
                .endpoint = {.addresses = {"127.0.0.1"}, .port = between.port()},
                .largest = 1 << 16});
  Descriptor to_child;
  const Descriptor to_parent = connect_to(target.port);
  const auto pass_on = [&](const Descriptor& from, const Descriptor& to) {
    std::string bytes(4096, '\0');
    const ssize_t count = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (!bytes.empty()) send(to, bytes);
    return bytes;
  };
  std::string hello;
  BOOST_REQUIRE(target.until([&] {
    child.step(0);
    if (!to_child) to_child = between.accept();
    pass_on(to_parent, to_child);
    hello += pass_on(to_child, to_parent);
    return child.state() == Uplink::State::connected;
  }));
  BOOST_REQUIRE(target.child_is_in());
  target.events.clear();

  const Descriptor stranger = connect_to(target.port);
  send(stranger, hello);
  BOOST_TEST(target.until([&] { return has_ended(stranger); }));

  // The man in the middle cannot inject a message either.
  BOOST_TEST(target.events.empty());
  BOOST_TEST(target.child_is_in());
  send(to_parent, frame(MessageKind::loss, to_payload({.rank = 1, .text = "gone"})) +
                      std::string(sizeof(Bytes32), 'x'));
  BOOST_TEST(target.until([&] { return has_ended(to_parent); }));
  for (const auto& event : target.events) BOOST_TEST((event.kind != Kind::told_of_loss));
}

BOOST_AUTO_TEST_CASE(a_parent_without_the_secret_is_rejected) {
  const Listener impostor(loopback());
  Uplink child({.rank = 1,
                .parent = 0,
                .secret = secret,
                .endpoint = {.addresses = {"127.0.0.1"}, .port = impostor.port()},
                .largest = 1 << 16});
  Descriptor connection;
  const auto talk_until = [&](auto&& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) {
      child.step(0);
      if (!connection) connection = impostor.accept();
      std::this_thread::sleep_for(5ms);
    }
    return condition();
  };
  BOOST_REQUIRE(talk_until([&] { return static_cast<bool>(connection); }));
  send(connection, frame(MessageKind::challenge, raw_bytes(Challenge{})));
  std::string said(frame(MessageKind::knock, raw_bytes(Knock{})).size() +
                       frame(MessageKind::hello, raw_bytes(Hello{})).size(),
                   '\0');
  BOOST_REQUIRE(talk_until([&] {
    return ::recv(connection.get(), said.data(), said.size(), MSG_PEEK) ==
           static_cast<ssize_t>(said.size());
  }));
  send(connection, frame(MessageKind::welcome, raw_bytes(Welcome{})) +
                       frame(MessageKind::verdict, "the job ends"));

  BOOST_TEST(talk_until([&] { return has_ended(connection); }));

  BOOST_TEST((child.state() == Uplink::State::connecting));
}

BOOST_AUTO_TEST_CASE(a_listener_on_one_address_is_not_reachable_at_another) {
  const Listener one(loopback());
  const auto other = *parse_address("127.0.0.2", one.port());
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

  BOOST_TEST(
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&other.storage), other.size) != 0);
  BOOST_TEST(errno == ECONNREFUSED);
}
