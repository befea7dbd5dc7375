#include <boost/test/unit_test.hpp>

#include "../../src/comm/shared_memory/shared_segment.hpp"
#include "../../src/comm/shared_memory/stale_segments.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

using namespace lockstep;

namespace {

constexpr SharedSegment::Sizes sizes{.common = 4096, .a_rank = 1 << 16};

std::set<std::string> segments() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with(segment_prefix)) found.insert(name);
  }
  return found;
}

/// Stops for ever in its first collective, in which the segment has a name.
class StuckCommunicator final : public ForwardingCommunicator {
 public:
  StuckCommunicator(Communicator& inner, int pipe) : ForwardingCommunicator(inner), pipe_(pipe) {}

 private:
  void begin(const CollectiveCall&) override {
    [[maybe_unused]] const ssize_t ignored = ::write(pipe_, "x", 1);
    while (true) ::pause();
  }
  int pipe_;
};

/// A process that has created a segment, which still has a name.
class Creator final {
 public:
  Creator() {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::alarm(60);  // ends the process if the test does not
      const auto self = make_self_communicator();
      StuckCommunicator stuck(*self, ends[1]);
      static_cast<void>(SharedSegment::make(stuck, sizes));
      ::_exit(1);
    }
    ::close(ends[1]);
    char ready = 0;
    BOOST_REQUIRE(::read(ends[0], &ready, 1) == 1);
    ::close(ends[0]);
    for (const std::string& each : segments()) {
      if (each.starts_with(fmt::format("{}{}-", segment_prefix, process_))) name = each;
    }
    BOOST_REQUIRE(!name.empty());
  }
  ~Creator() {
    kill();
    ::shm_unlink(("/" + name).c_str());
  }
  Creator(const Creator&) = delete;
  Creator& operator=(const Creator&) = delete;

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

  std::string name;

 private:
  pid_t process_ = 0;
};

void make_a_segment() {
  const auto self = make_self_communicator();
  BOOST_TEST(SharedSegment::make(*self, sizes).segment != nullptr);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_next_job_removes_the_segment_of_a_killed_one) {
  Creator creator;
  creator.kill();
  BOOST_REQUIRE(segments().contains(creator.name));

  make_a_segment();

  BOOST_TEST(!segments().contains(creator.name));
}

BOOST_AUTO_TEST_CASE(a_segment_whose_creator_lives_is_kept) {
  const Creator creator;

  make_a_segment();

  BOOST_TEST(segments().contains(creator.name));
}

BOOST_AUTO_TEST_CASE(only_this_users_segments_of_this_program_are_removed) {
  const std::string other_program = fmt::format("/other-{}", ::getpid());
  const std::string other_user = fmt::format("/{}{}-other", segment_prefix, ::getpid());
  for (const std::string& name : {other_program, other_user}) {
    const Descriptor file(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    BOOST_REQUIRE(file.get() >= 0);
  }
  const bool is_others = ::chown(("/dev/shm" + other_user).c_str(), 65534, 65534) == 0;

  remove_stale_segments();

  BOOST_TEST(::shm_unlink(other_program.c_str()) == 0);
  // Only root can give a file to another user.
  BOOST_TEST((::shm_unlink(other_user.c_str()) == 0) == is_others);
}

BOOST_AUTO_TEST_CASE(a_segment_removed_before_it_was_locked_is_not_used) {
  const std::string name = fmt::format("/{}{}-removed", segment_prefix, ::getpid());
  const Descriptor file(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  BOOST_REQUIRE(file.get() >= 0);

  remove_stale_segments();

  BOOST_TEST(!lock_segment(file.get()));
}
