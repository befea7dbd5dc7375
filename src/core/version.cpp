#include "lockstep/core/version.hpp"

namespace lockstep {

std::string version() {
  return LOCKSTEP_VERSION;
}

}  // namespace lockstep
