// model_dump NAME [PARAMETER...]: prints the model's parameters, then its running statistics, one
// "name extent extent ..." per line, or the mean, the standard deviation and the largest magnitude
// of the parameters' initial values, for torchvision_names.py.
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>

using namespace lockstep;

namespace {

void print_values(const Graph& graph, const std::string& name) {
  const auto parameter = std::ranges::find(graph.parameters(), name, &Parameter::name);
  if (parameter == graph.parameters().end()) fail(ExitStatus::usage, "there is no {}", name);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  const std::vector<float> values = initial_values(*parameter, 1);
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
    largest = std::max(largest, std::abs(value));
  }
  std::cout << mean << ' ' << std::sqrt(squares / static_cast<double>(values.size())) << ' '
            << largest << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: model_dump NAME [PARAMETER...]\n", stderr);
    return static_cast<int>(ExitStatus::usage);
  }
  try {
    const Graph graph = make_model(argv[1], {});
    for (const char* name : std::span(argv, static_cast<std::size_t>(argc)).subspan(2)) {
      print_values(graph, name);
    }
    if (argc > 2) return 0;
    for (const Parameter& parameter : graph.parameters()) {
      std::cout << parameter.name;
      for (const std::int64_t extent : parameter.shape.extents()) std::cout << ' ' << extent;
      std::cout << '\n';
    }
    for (const RunningStatistic& statistic : graph.statistics()) {
      std::cout << statistic.name << ' ' << statistic.channels << '\n';
    }
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status());
  }
}
