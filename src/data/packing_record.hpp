#pragma once

#include "lockstep/data/pack.hpp"
#include "unfinished_packing.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// The file packing_record_name beside the shards: what was packed, with which settings, and what
/// became of each entry of the input. JSON.
[[nodiscard]] std::string packing_record_text(const PackResult& result,
                                              const PackSettings& settings);

/// The result of a packing of these settings; nullopt if the record is another one's.
[[nodiscard]] std::optional<PackResult> parse_packing_record(const std::string& text,
                                                             const PackSettings& settings);
/// The same of the record in `directory`, if there is one.
[[nodiscard]] std::optional<PackResult> read_packing_record(const std::string& directory,
                                                            const PackSettings& settings);

}  // namespace lockstep
