#include "lockstep/core/current_error.hpp"

#include "lockstep/core/address_space.hpp"
#include "lockstep/core/host_name.hpp"

#include <new>
#include <system_error>

namespace lockstep {
namespace {

Error lacks_memory(std::string_view what) {
  const std::string limit = describe_address_space();
  if (!limit.empty()) {
    return {ExitStatus::usage, fmt::format("{} ({}); raise the limit", what, limit)};
  }
  return {ExitStatus::internal,
          fmt::format("{} (an allocation failed on this rank); use a smaller batch, or fewer ranks "
                      "a node",
                      what)};
}

Error cannot_start_thread() {
  const std::string limit = describe_address_space();
  if (!limit.empty()) return lacks_memory("out of memory: a thread cannot start");
  return {
      ExitStatus::usage,
      fmt::format("a thread cannot start on {} (the limit of processes and threads is reached); "
                  "raise ulimit -u, or use fewer ranks or --threads a node",
                  host_name())};
}

}  // namespace

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return lacks_memory("out of memory");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) return cannot_start_thread();
    if (error.code() == std::errc::not_enough_memory) return lacks_memory("out of memory");
    return {ExitStatus::internal, error.what()};
  } catch (const std::exception& error) {
    return {ExitStatus::internal, error.what()};
  } catch (...) {
    return {ExitStatus::internal, "an exception of unknown type was thrown"};
  }
}

}  // namespace lockstep
