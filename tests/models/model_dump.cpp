// model_dump NAME: prints the model's parameters, then its running statistics, one "name extent
// extent ..." per line, for torchvision_names.py.
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <cstdio>
#include <iostream>

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 2) {
    std::fputs("usage: model_dump NAME\n", stderr);
    return static_cast<int>(ExitStatus::usage);
  }
  try {
    const Graph graph = make_model(argv[1], {});
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
