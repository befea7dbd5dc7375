#include "lockstep/core/address_space.hpp"

#include "lockstep/core/error.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep {
namespace {

struct Mapped {
  unsigned long long all = 0;
  unsigned long long data = 0;
};

/// Called when memory has run out, so it allocates none.
Mapped mapped_bytes() noexcept {
  char text[256]{};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  if (::read(file, text, sizeof(text) - 1) < 0) text[0] = '\0';
  ::close(file);
  Mapped pages;
  std::sscanf(text, "%llu %*u %*u %*u %*u %llu", &pages.all, &pages.data);
  const auto page = static_cast<unsigned long long>(::sysconf(_SC_PAGESIZE));
  return {.all = pages.all * page, .data = pages.data * page};
}

double mib(std::uint64_t bytes) noexcept {
  return static_cast<double>(bytes) / 0x1p20;
}

std::string describe(const AddressSpaceLimit& limit) {
  return fmt::format("{} allows {:.0f} MiB, of which {:.0f} MiB are mapped", limit.source,
                     mib(limit.bytes), mib(limit.mapped));
}

}  // namespace

std::optional<AddressSpaceLimit> address_space_limit() noexcept {
  const auto limit_of = [](auto resource) -> std::optional<std::uint64_t> {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return limit.rlim_cur;
  };
  const auto all = limit_of(RLIMIT_AS);
  const auto data = limit_of(RLIMIT_DATA);
  if (!all && !data) return std::nullopt;
  const Mapped mapped = mapped_bytes();
  const AddressSpaceLimit of_all{
      .bytes = all.value_or(UINT64_MAX), .mapped = mapped.all, .source = "ulimit -v"};
  const AddressSpaceLimit of_data{
      .bytes = data.value_or(UINT64_MAX), .mapped = mapped.data, .source = "ulimit -d"};
  return of_all.left() <= of_data.left() ? of_all : of_data;
}

void use_one_heap_if_limited() noexcept {
  if (address_space_limit()) ::mallopt(M_ARENA_MAX, 1);
}

std::uint64_t thread_address_space() noexcept {
  constexpr std::uint64_t usual = 8 << 20;
  rlimit stack{};
  const bool known = ::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
  return known ? stack.rlim_cur : usual;
}

void require_address_space(std::uint64_t bytes, std::string_view purpose) {
  const auto limit = address_space_limit();
  if (!limit || bytes <= limit->left()) return;
  fail(ExitStatus::usage,
       "memory is limited too much {} ({}, and {:.0f} MiB more are needed); raise the limit to "
       "{:.0f} "
       "MiB or more",
       purpose, describe(*limit), mib(bytes), mib(limit->mapped + bytes));
}

std::string describe_address_space() {
  const auto limit = address_space_limit();
  return limit ? describe(*limit) : std::string();
}

}  // namespace lockstep
