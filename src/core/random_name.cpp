#include "lockstep/core/random_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace lockstep {
namespace {

constexpr std::size_t digits = 32;

}  // namespace

std::string random_name() {
  std::random_device device;  // getrandom(), or the processor's generator
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

bool is_random_name(std::string_view name) noexcept {
  return name.size() == digits && name.find_first_not_of("0123456789abcdef") == name.npos;
}

}  // namespace lockstep
