#include "lockstep/comm/all_reduce_choice.hpp"

#include <bit>

namespace lockstep {

std::optional<std::string_view> choose_all_reduce(const AllReduceFacts& facts) {
  const bool set_by_user = facts.in_environment || facts.parameter != open_mpi_decides;
  if (facts.ranks == 1 || !facts.parameter || set_by_user) return std::nullopt;
  return std::has_single_bit(static_cast<unsigned>(facts.ranks)) ? "rabenseifner" : "ring";
}

std::string mpi_name(std::string_view library_version) {
  const std::string_view line = library_version.substr(0, library_version.find_first_of(",\n"));
  for (const std::string_view before_number : {" v", " Version:"}) {
    const std::size_t place = line.find(before_number);
    const std::size_t number = line.find_first_of("0123456789");
    if (place == std::string_view::npos || number == std::string_view::npos) continue;
    return std::string(line.substr(0, place + 1)) + std::string(line.substr(number));
  }
  return std::string(line);
}

}  // namespace lockstep
