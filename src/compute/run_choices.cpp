#include "run_choices.hpp"

#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view bf16_prefix = "bf16: ";

/// Lines for GPUs contain tabs.
ChoiceKind kind_of(const std::string& line) {
  if (line.find('\t') != std::string::npos) return ChoiceKind::gpu;
  return line.starts_with(bf16_prefix) ? ChoiceKind::cpu_bf16 : ChoiceKind::cpu_fp32;
}

std::string_view prefix_of(ChoiceKind kind) {
  return kind == ChoiceKind::cpu_bf16 ? bf16_prefix : std::string_view();
}

}  // namespace

ChoiceKind cpu_choices(Precision precision) noexcept {
  return precision == Precision::bf16 ? ChoiceKind::cpu_bf16 : ChoiceKind::cpu_fp32;
}

std::string choices_of(ChoiceKind kind, const std::string& run) {
  std::string choices;
  std::istringstream lines(run);
  for (std::string line; std::getline(lines, line);) {
    if (kind_of(line) == kind) choices += line.substr(prefix_of(kind).size()) + '\n';
  }
  return choices;
}

std::string with_choices(ChoiceKind kind, const std::string& choices, const std::string& run) {
  std::string all;
  std::istringstream others(run);
  for (std::string line; std::getline(others, line);) {
    if (kind_of(line) != kind) all += line + '\n';
  }
  std::istringstream lines(choices);
  for (std::string line; std::getline(lines, line);) {
    all.append(prefix_of(kind)).append(line) += '\n';
  }
  return all;
}

}  // namespace lockstep
