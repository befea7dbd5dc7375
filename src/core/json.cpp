#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0U | code >> 6U);
    add(0x80U | (code & 0x3fU));
  } else if (code < 0x10000) {
    add(0xe0U | code >> 12U);
    add(0x80U | (code >> 6U & 0x3fU));
    add(0x80U | (code & 0x3fU));
  } else {
    add(0xf0U | code >> 18U);
    add(0x80U | (code >> 12U & 0x3fU));
    add(0x80U | (code >> 6U & 0x3fU));
    add(0x80U | (code & 0x3fU));
  }
}

/// Functions return false after a problem, whose place is then `at_`.
class Reader final {
 public:
  Reader(std::string_view text, JsonVisitor& visitor, const JsonLimits& limits)
      : text_(text), visitor_(visitor), limits_(limits) {}

  std::optional<JsonProblem> run() {
    bool good = text_.size() <= limits_.bytes ? value() : refuse("the text is too long");
    while (good && !open_.empty()) good = next();
    skip_space();
    if (good && at_ < text_.size()) good = refuse("more follows the value");
    if (good) return std::nullopt;
    const std::string_view before = text_.substr(0, at_);
    const auto line = static_cast<std::size_t>(std::ranges::count(before, '\n'));
    return JsonProblem{.reason = reason_,
                       .line = line + 1,
                       .byte = line == 0 ? at_ + 1 : at_ - before.find_last_of('\n')};
  }

 private:
  struct Level {
    bool is_object = false;
    std::size_t members = 0;
  };

  bool refuse(const char* reason) {
    reason_ = at_ < text_.size() ? reason : "it ends early";
    return false;
  }

  [[nodiscard]] char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() noexcept {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool take(char wanted) noexcept {
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  /// Reads the next member of the innermost array or object, or its end.
  bool next() {
    Level& level = open_.back();
    skip_space();
    if (take(level.is_object ? '}' : ']')) {
      open_.pop_back();
      visitor_.end();
      return true;
    }
    if (level.members > 0 && !take(',')) {
      return refuse(level.is_object ? "a comma or } is expected" : "a comma or ] is expected");
    }
    if (level.is_object && level.members == limits_.members) {
      return refuse("an object of too many members");
    }
    ++level.members;
    if (level.is_object && !key()) return false;
    return value();
  }

  bool key() {
    skip_space();
    std::string_view text;
    if (!take('"')) return refuse("a name in quotes is expected");
    if (!string(text)) return false;
    visitor_.key(text);
    skip_space();
    return take(':') || refuse("a colon is expected");
  }

  bool value() {
    skip_space();
    if (++values_ > limits_.values) return refuse("too many values");
    switch (peek()) {
      case '{':
      case '[':
        return open();
      case '"': {
        ++at_;
        std::string_view text;
        if (!string(text)) return false;
        visitor_.string(text);
        return true;
      }
      case 't':
        return literal("true") && (visitor_.boolean(true), true);
      case 'f':
        return literal("false") && (visitor_.boolean(false), true);
      case 'n':
        return literal("null") && (visitor_.null(), true);
      default:
        return number();
    }
  }

  bool open() {
    if (open_.size() == limits_.depth) return refuse("nested too deeply");
    const bool is_object = text_[at_++] == '{';
    open_.push_back({.is_object = is_object});
    is_object ? visitor_.begin_object() : visitor_.begin_array();
    return true;
  }

  bool literal(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return refuse("a value is expected");
    at_ += word.size();
    return true;
  }

  /// Passes over bytes that mean themselves; whether all are ASCII.
  bool plain_bytes() noexcept {
    unsigned char all = 0;
    std::size_t at = at_;
    for (; at < text_.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text_[at]);
      if (byte == '"' || byte == '\\' || byte < 0x20) break;
      all |= byte;
    }
    at_ = at;
    return all < 0x80;
  }

  /// After the opening quote. `text` is part of the whole text, or of `unescaped_`.
  bool string(std::string_view& text) {
    unescaped_.clear();
    const std::size_t start = at_;
    std::size_t begin = at_;
    bool is_ascii = plain_bytes();
    for (; peek() == '\\'; is_ascii = plain_bytes() && is_ascii) {
      unescaped_ += text_.substr(begin, at_ - begin);
      ++at_;
      if (!escape()) return false;
      begin = ++at_;
    }
    if (peek() != '"') return refuse("a control character in a text");
    // What \u names is UTF-8 by itself, so the written bytes must be as well.
    if (!is_ascii && !is_utf8(text_.substr(start, at_ - start))) return refuse("not UTF-8");
    text = text_.substr(begin, at_ - begin);
    if (begin != start) text = unescaped_ += text;
    ++at_;
    return true;
  }

  /// After the backslash; ends at the last byte.
  bool escape() {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (peek() != 'u') {
      const std::size_t which = letters.find(peek());
      if (which == std::string_view::npos) return refuse("an unknown escape in a text");
      unescaped_ += meanings[which];
      return true;
    }
    std::uint32_t code = 0;
    if (!hexadecimal(code)) return false;
    if (code >= 0xdc00 && code < 0xe000) return refuse("half of a surrogate pair");
    if (code >= 0xd800 && code < 0xdc00) {
      std::uint32_t low = 0;
      if (!text_.substr(at_ + 1).starts_with("\\u")) return refuse("half of a surrogate pair");
      at_ += 2;
      if (!hexadecimal(low)) return false;
      if (low < 0xdc00 || low >= 0xe000) return refuse("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
    }
    append_utf8(unescaped_, code);
    return true;
  }

  /// The four digits after `u`; ends at the last one.
  bool hexadecimal(std::uint32_t& code) {
    const std::string_view digits = text_.substr(at_ + 1, 4);
    const auto [rest, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || rest != digits.data() + 4) {
      return refuse("four hexadecimal digits are expected after \\u");
    }
    at_ += 4;
    return true;
  }

  bool digits() {
    if (!is_digit(peek())) return refuse("a digit is expected");
    while (is_digit(peek())) ++at_;
    return true;
  }

  bool number() {
    const std::size_t begin = at_;
    if (peek() != '-' && !is_digit(peek())) return refuse("a value is expected");
    take('-');
    if (!take('0') && !digits()) return false;
    bool is_integer = true;
    if (take('.')) {
      is_integer = false;
      if (!digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      is_integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return false;
    }
    const std::string_view written = text_.substr(begin, at_ - begin);
    if (is_integer && integer(written)) return true;
    double value = 0;
    const auto read = std::from_chars(written.data(), written.data() + written.size(), value);
    // Too small or too large, which strtod() tells apart.
    if (read.ec != std::errc()) value = std::strtod(std::string(written).c_str(), nullptr);
    if (!std::isfinite(value)) {
      at_ = begin;
      return refuse("a number too large for a double");
    }
    visitor_.number(value);
    return true;
  }

  bool integer(std::string_view written) {
    const char* const end = written.data() + written.size();
    std::int64_t value = 0;
    if (std::from_chars(written.data(), end, value).ec == std::errc()) {
      visitor_.number(value);
      return true;
    }
    std::uint64_t large = 0;
    if (std::from_chars(written.data(), end, large).ec != std::errc()) return false;
    visitor_.number(large);
    return true;
  }

  std::string_view text_;
  JsonVisitor& visitor_;
  const JsonLimits& limits_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
  const char* reason_ = "";
  std::vector<Level> open_;
  std::string unescaped_;
};

/// Makes a tree of what it receives.
class TreeBuilder final : public JsonVisitor {
 public:
  void begin_object() override { open_.push_back(add(Json::object())); }
  void begin_array() override { open_.push_back(add(Json::array())); }
  void end() override { open_.pop_back(); }
  void key(std::string_view text) override { key_ = text; }
  void string(std::string_view text) override { add(std::string(text)); }
  void number(double value) override { add(value); }
  void number(std::int64_t value) override { add(value); }
  void number(std::uint64_t value) override { add(value); }
  void boolean(bool value) override { add(value); }
  void null() override { add(nullptr); }

  Json take() noexcept { return std::move(root_); }

 private:
  /// Parents do not move while a member of theirs is open.
  Json* add(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

std::optional<JsonProblem> visit_json(std::string_view text, JsonVisitor& visitor,
                                      const JsonLimits& limits) {
  return Reader(text, visitor, limits).run();
}

std::optional<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  TreeBuilder builder;
  if (visit_json(text, builder, limits)) return std::nullopt;
  return builder.take();
}

Json require_json(std::string_view text, const std::string& name, const char* suggestion,
                  const JsonLimits& limits) {
  TreeBuilder builder;
  if (const auto problem = visit_json(text, builder, limits)) {
    fail(ExitStatus::bad_input, "{} is not JSON ({}; line {}, byte {}); {}", name, problem->reason,
         problem->line, problem->byte, suggestion);
  }
  return builder.take();
}

}  // namespace lockstep
