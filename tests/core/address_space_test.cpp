#include "lockstep/core/address_space.hpp"

#include "core/sanitizers.hpp"
#include "lockstep/core/current_error.hpp"

#include <sys/resource.h>
#include <boost/test/unit_test.hpp>

#include <functional>
#include <new>
#include <system_error>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::uint64_t mib = 1 << 20;

/// Sets a limit of this process while it lives.
class Limit final {
 public:
  Limit(__rlimit_resource resource, std::uint64_t bytes) : resource_(resource) {
    BOOST_REQUIRE(::getrlimit(resource, &before_) == 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    BOOST_REQUIRE(::setrlimit(resource, &limit) == 0);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { ::setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    return current_error();
  }
  return {ExitStatus::ok, "nothing was thrown"};
}

bool says(const Error& error, const char* part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(without_a_limit_any_need_is_met, *boost::unit_test::enable_if<!sanitized>()) {
  BOOST_TEST(!address_space_limit());
  require_address_space(UINT64_MAX, "to start");
  BOOST_TEST(describe_address_space().empty());
}

BOOST_AUTO_TEST_CASE(a_limit_counts_what_is_mapped, *boost::unit_test::enable_if<!sanitized>()) {
  for (const auto& [resource, source] :
       {std::pair{RLIMIT_AS, "ulimit -v"}, std::pair{RLIMIT_DATA, "ulimit -d"}}) {
    const Limit limit(resource, 4000 * mib);

    const auto found = address_space_limit();

    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(std::string(found->source) == source);
    BOOST_TEST(found->bytes == 4000 * mib);
    BOOST_TEST(found->mapped > 0u);
    BOOST_TEST(found->mapped < 2000 * mib);
    require_address_space(found->left() - mib, "to start");
    const Error error = error_of([&] { require_address_space(4000 * mib, "to start"); });
    BOOST_TEST((error.status() == ExitStatus::usage));
    BOOST_TEST(says(error, "to start"), error.what());
    BOOST_TEST(says(error, source), error.what());
    BOOST_TEST(says(error, "4000 MiB more are needed"), error.what());
  }
}

BOOST_AUTO_TEST_CASE(memory_that_ran_out_names_the_limit,
                     *boost::unit_test::enable_if<!sanitized>()) {
  const auto no_memory = [] { throw std::bad_alloc(); };
  const auto no_thread = [] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  BOOST_TEST(says(error_of(no_memory), "out of memory"));
  BOOST_TEST((error_of(no_memory).status() == ExitStatus::internal));
  BOOST_TEST(says(error_of(no_thread), "ulimit -u"));
  BOOST_TEST((error_of(no_thread).status() == ExitStatus::usage));
  const Limit limit(RLIMIT_AS, 4000 * mib);
  for (const auto& work : {std::function<void()>(no_memory), std::function<void()>(no_thread)}) {
    BOOST_TEST(says(error_of(work), "out of memory"), error_of(work).what());
    BOOST_TEST(says(error_of(work), "ulimit -v allows 4000 MiB"), error_of(work).what());
    BOOST_TEST((error_of(work).status() == ExitStatus::usage));
  }
}

BOOST_AUTO_TEST_CASE(other_exceptions_keep_their_text) {
  BOOST_TEST(
      (error_of([] { fail(ExitStatus::bad_input, "damaged"); }).status() == ExitStatus::bad_input));
  const Error error = error_of([] { throw std::runtime_error("odd"); });
  BOOST_TEST((error.status() == ExitStatus::internal));
  BOOST_TEST(says(error, "odd"));
  BOOST_TEST(says(error_of([] { throw 7; }), "unknown type"));
}
