#pragma once

#include "uplink.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>

namespace lockstep::watch {

/// A rank's node and endpoint, sent to the others as "node port address address".
struct Introduction {
  int node = 0;
  Endpoint endpoint;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} {} {}", node, endpoint.port, fmt::join(endpoint.addresses, " "));
  }
  static Introduction parse(const std::string& text) {
    std::istringstream stream(text);
    Introduction result;
    stream >> result.node >> result.endpoint.port;
    for (std::string address; stream >> address;) result.endpoint.addresses.push_back(address);
    return result;
  }
};

}  // namespace lockstep::watch
