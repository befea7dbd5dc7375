#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

/// The only JSON that the program reads. A text is what RFC 8259 defines, in UTF-8, and nothing
/// else: no NaN, no infinity, no comments, no byte order mark, no bytes after the value. Also
/// refused: a number that a double cannot hold (1e999; 1e-999 is 0), half of a surrogate pair, and
/// what is beyond JsonLimits. Integers are exact from -2^63 to 2^64 - 1, beyond that the nearest
/// double. Of members with the same name, the last one counts. Reading takes no stack by depth and,
/// for a tree, at most 32 times the text's bytes of memory.
namespace lockstep {

/// A tree of values; members keep their order.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t bytes = std::size_t{16} << 20;  ///< of the text
  std::size_t depth = 32;                     ///< of arrays and objects in each other
  std::size_t members = 4096;                 ///< of one object: to find one takes a search
  std::size_t values = std::size_t{1} << 20;  ///< in all
};

/// For what this program has written itself, such as messages between ranks and records of packing,
/// which may be long lists.
inline constexpr JsonLimits trusted_json{.bytes = std::numeric_limits<std::size_t>::max(),
                                         .values = std::numeric_limits<std::size_t>::max()};

/// Where and why a text is refused. Both numbers begin at 1; the byte's is that in the line.
struct JsonProblem {
  const char* reason = nullptr;
  std::size_t line = 0;
  std::size_t byte = 0;
};

/// Receives what a text holds, in its order. Texts are valid until the next call.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void begin_object() = 0;
  virtual void begin_array() = 0;
  virtual void end() = 0;  ///< of the innermost object or array
  virtual void key(std::string_view text) = 0;
  virtual void string(std::string_view text) = 0;
  virtual void number(double value) = 0;
  virtual void number(std::int64_t value) = 0;
  virtual void number(std::uint64_t value) = 0;  ///< above 2^63 - 1
  virtual void boolean(bool value) = 0;
  virtual void null() = 0;
};

/// Reads a text without making a tree of it, three times as fast. nullopt: the text is good;
/// otherwise the visitor has received what is before the problem.
[[nodiscard]] std::optional<JsonProblem> visit_json(std::string_view text, JsonVisitor& visitor,
                                                    const JsonLimits& limits = {});

/// nullopt if the text is refused: for records that may be torn, whose readers do without them.
[[nodiscard]] std::optional<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Error(bad_input) if the text is refused: "NAME is not JSON (REASON; line 1, byte 5);
/// SUGGESTION".
[[nodiscard]] Json require_json(std::string_view text, const std::string& name,
                                const char* suggestion, const JsonLimits& limits = {});

}  // namespace lockstep
