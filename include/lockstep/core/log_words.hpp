#pragma once

#include <string_view>

/// Words of messages in the ranks' logs from which a restart is decided (run/rank_logs.hpp).
namespace lockstep::log_words {

inline constexpr std::string_view finished = "finished";  ///< then " at step N"
inline constexpr std::string_view stopped_on_request = "stopped on request";
inline constexpr std::string_view stopped_in_time = "stopped before the time limit";
inline constexpr std::string_view nothing_to_do = "nothing to do: step";

/// After "rank N (HOST) ".
inline constexpr std::string_view gone = "is gone";
inline constexpr std::string_view no_answer = "its node does not answer";  ///< in "is gone (...)"
inline constexpr std::string_view silent = "was last heard of";
inline constexpr std::string_view late = "has been late for";
inline constexpr std::string_view alone = "has waited by itself for";
inline constexpr std::string_view drifted = "holds other parameters";
inline constexpr std::string_view slow = "is slow";

inline constexpr std::string_view exclude = "--exclude=";  ///< before hosts to be left out

}  // namespace lockstep::log_words
