#include "lockstep/engine/convolution_choices.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

std::size_t index(ConvolutionStep step) {
  return static_cast<std::size_t>(step);
}

constexpr const char* winograd_word = "winograd";
constexpr const char* direct_word = "direct";

}  // namespace

std::string WinogradShape::text() const {
  return fmt::format("{}x{}x{} to {}, padding {}", in_channels, height, width, out_channels,
                     padding);
}

std::string to_string(ConvolutionStep step) {
  switch (step) {
    case ConvolutionStep::forward:
      return "forward";
    case ConvolutionStep::data_gradient:
      return "data gradient";
    case ConvolutionStep::weight_gradient:
      return "weight gradient";
  }
  return "";
}

std::optional<WinogradShape> winograd_shape(const Graph& graph, const Conv2d& op) {
  constexpr std::int64_t fewest_channels = 16;
  const Shape& input = graph.nodes()[static_cast<std::size_t>(op.input)].output;
  const Conv2dOptions& options = op.options;
  if (options.kernel != 3 || options.stride != 1 || options.padding > 2 || options.groups != 1 ||
      input[0] < fewest_channels || options.out_channels < fewest_channels) {
    return std::nullopt;
  }
  return WinogradShape{.in_channels = input[0],
                       .height = input[1],
                       .width = input[2],
                       .out_channels = options.out_channels,
                       .padding = options.padding};
}

void ConvolutionChoices::set(const WinogradShape& shape, ConvolutionStep step, bool winograd) {
  choices_[shape][index(step)] = winograd;
}

void ConvolutionChoices::add(const ConvolutionChoices& other) {
  for (const auto& [shape, steps] : other.choices_) choices_[shape] = steps;
}

bool ConvolutionChoices::contains(const WinogradShape& shape) const {
  return choices_.contains(shape);
}

bool ConvolutionChoices::winograd(const WinogradShape& shape, ConvolutionStep step) const {
  const auto found = choices_.find(shape);
  return found != choices_.end() && found->second[index(step)];
}

std::string ConvolutionChoices::text() const {
  std::string text;
  for (const auto& [shape, steps] : choices_) {
    text += shape.text() + ":";
    for (const bool winograd : steps) {
      text += ' ';
      text += winograd ? winograd_word : direct_word;
    }
    text += '\n';
  }
  return text;
}

ConvolutionChoices ConvolutionChoices::parse(const std::string& text) {
  ConvolutionChoices choices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    WinogradShape shape;
    char times = 0;
    char times_too = 0;
    char comma = 0;
    char colon = 0;
    std::string to;
    std::string padding;
    std::istringstream words(line);
    words >> shape.in_channels >> times >> shape.height >> times_too >> shape.width >> to >>
        shape.out_channels >> comma >> padding >> shape.padding >> colon;
    for (const ConvolutionStep step : convolution_steps) {
      std::string word;
      words >> word;
      choices.set(shape, step, word == winograd_word);
    }
  }
  if (choices.text() != text) {
    fail(ExitStatus::bad_input,
         "the algorithms of convolutions do not parse ('{}' is not what is written of them) the "
         "file is another program's, or damaged",
         text);
  }
  return choices;
}

}  // namespace lockstep
