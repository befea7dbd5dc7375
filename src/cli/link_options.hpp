#pragma once

#include "lockstep/config/option_table.hpp"
#include "lockstep/parallel/step_prediction.hpp"

#include <fmt/format.h>

#include <string>

namespace lockstep::cli {

/// What connects ranks, for predictions.
struct LinkOptions {
  std::string link;
  std::string local_link = fmt::format("{}gbit", 8e-9 * default_local_rate);
  double round_us = 1e6 * default_round_seconds;
  double host_ns_per_byte = 0;
};
[[nodiscard]] const OptionTable<LinkOptions>& link_options();

/// Adds all of them to the options of a struct that has them as the member `links`.
template <typename Arguments>
void add_link_options(OptionTable<Arguments>& table) {
  table.add(&Arguments::links, link_options(),
            {{.name = "link"},
             {.name = "local-link"},
             {.name = "round-us"},
             {.name = "host-ns-per-byte"}});
}

/// Error(usage) if a rate cannot be parsed. --link may be empty for one node.
[[nodiscard]] Cluster cluster_of(const LinkOptions& links, int nodes, int ranks_per_node);

}  // namespace lockstep::cli
