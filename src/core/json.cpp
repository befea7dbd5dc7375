#include "lockstep/core/json.hpp"

#include "lockstep/core/error.hpp"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

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
