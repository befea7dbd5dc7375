#include "link_options.hpp"

#include "lockstep/core/error.hpp"

#include <charconv>
#include <string_view>
#include <system_error>

namespace lockstep::cli {
namespace {

/// Bytes per second of "400gbit" or "100mbit".
double parse_rate(const char* option, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const double factor = unit == "gbit" ? 1e9 : unit == "mbit" ? 1e6 : 0;
  if (error != std::errc() || factor == 0 || !(number > 0)) {
    fail(ExitStatus::usage,
         "--{} {} is no rate (a number and gbit or mbit); give, for example, 400gbit", option,
         text.empty() ? "''" : text);
  }
  return number * factor / 8;
}

}  // namespace

const OptionTable<LinkOptions>& link_options() {
  static const OptionTable<LinkOptions> all = [] {
    OptionTable<LinkOptions> table;
    table
        .add(&LinkOptions::link, "link",
             "rate of all network links of a node together, in each direction: 400gbit")
        .add(&LinkOptions::local_link, "local-link",
             "rate of a rank to the others of its node; the default is NVLink of an H100")
        .add(&LinkOptions::round_us, "round-us", "latency of one round of messages between nodes",
             {.unit = "us", .min = 0, .max = 1e6})
        .add(&LinkOptions::host_ns_per_byte, "host-ns-per-byte",
             "time of computing ranks for a byte that they send to another node and one "
             "that they receive: CPU ranks do it themselves",
             {.unit = "ns", .min = 0, .max = 1e6});
    return table;
  }();
  return all;
}

Cluster cluster_of(const LinkOptions& links, int nodes, int ranks_per_node) {
  return {.nodes = nodes,
          .ranks_per_node = ranks_per_node,
          .node_rate = nodes == 1 ? 0 : parse_rate("link", links.link),
          .local_rate = parse_rate("local-link", links.local_link),
          .round_seconds = 1e-6 * links.round_us,
          .host_seconds_per_byte = 1e-9 * links.host_ns_per_byte};
}

}  // namespace lockstep::cli
