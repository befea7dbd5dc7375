#include "number_scan.hpp"

#include "lockstep/core/json.hpp"
#include "lockstep/report/curve.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::report {
namespace {

class NumberVisitor final : public JsonVisitor {
 public:
  explicit NumberVisitor(FunctionRef<void(std::string_view, double)> found) : found_(found) {}

  [[nodiscard]] bool is_object() const noexcept { return is_object_; }

  void begin_object() override {
    if (open_.empty()) {
      is_object_ = true;
    } else {
      path_ += '.';
    }
    open_.push_back({.path_bytes = path_.size(), .is_array = false});
  }
  void begin_array() override { open_.push_back({.path_bytes = path_.size(), .is_array = true}); }
  void end() override { open_.pop_back(); }
  void key(std::string_view text) override {
    path_.resize(open_.back().path_bytes);
    path_ += text;
  }
  void number(double value) override {
    if (!open_.empty() && !open_.back().is_array) found_(path_, value);
  }
  void number(std::int64_t value) override { number(static_cast<double>(value)); }
  void number(std::uint64_t value) override { number(static_cast<double>(value)); }
  void null() override { number(unknown); }
  void string(std::string_view /*text*/) override {}
  void boolean(bool /*value*/) override {}

 private:
  struct Level {
    std::size_t path_bytes = 0;  ///< of what is before its members' names
    bool is_array = false;
  };

  FunctionRef<void(std::string_view, double)> found_;
  std::string path_;
  bool is_object_ = false;
  std::vector<Level> open_;
};

}  // namespace

bool scan_numbers(std::string_view text, FunctionRef<void(std::string_view, double)> found) {
  NumberVisitor visitor(found);
  return !visit_json(text, visitor) && visitor.is_object();
}

}  // namespace lockstep::report
