#include "number_scan.hpp"

#include "lockstep/report/curve.hpp"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <system_error>

namespace lockstep::report {
namespace {

constexpr int deepest = 8;

class Scanner final {
 public:
  Scanner(std::string_view text, FunctionRef<void(std::string_view, double)> found)
      : at_(text.data()), end_(text.data() + text.size()), found_(found) {}

  bool run() {
    if (!object(0)) return false;
    skip_space();
    return at_ == end_;
  }

 private:
  void skip_space() noexcept {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }

  bool take(char wanted) noexcept {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  /// A string's text as written: escapes are not replaced.
  bool string(std::string_view& text) noexcept {
    if (!take('"')) return false;
    const char* const begin = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    text = {begin, static_cast<std::size_t>(at_++ - begin)};
    return true;
  }

  bool object(int depth) {
    if (depth == deepest || !take('{')) return false;
    if (take('}')) return true;
    const std::size_t outer = path_.size();
    do {
      std::string_view key;
      if (!string(key) || !take(':')) return false;
      path_.append(key);
      if (!value(depth)) return false;
      path_.resize(outer);
    } while (take(','));
    return take('}');
  }

  bool value(int depth) {
    skip_space();
    if (at_ == end_) return false;
    if (*at_ == '{') {
      path_ += '.';
      return object(depth + 1);
    }
    std::string_view ignored;
    if (*at_ == '"') return string(ignored);
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with("null")) {
      at_ += 4;
      found_(path_, unknown);
      return true;
    }
    double number = 0;
    const auto [rest, error] = std::from_chars(at_, end_, number);
    if (error != std::errc() || !std::isfinite(number)) return false;  // it reads inf and nan too
    at_ = rest;
    found_(path_, number);
    return true;
  }

  const char* at_;
  const char* end_;
  FunctionRef<void(std::string_view, double)> found_;
  std::string path_;
};

}  // namespace

bool scan_numbers(std::string_view text, FunctionRef<void(std::string_view, double)> found) {
  return Scanner(text, found).run();
}

}  // namespace lockstep::report
