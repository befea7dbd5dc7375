#include "choose_algorithms.hpp"

namespace lockstep::cuda {

std::string choose_algorithms(Device& device, const Graph& graph, Precision precision,
                              std::int64_t batch_size, AlgorithmCache& cache) {
  AlgorithmChoices choices;
  for (const ConvolutionRequest& request : requests_of(graph, precision, batch_size)) {
    const std::string what = request.text();
    const std::string key = device.algorithm_library() + '\t' + what;
    std::string algorithm = cache.find(key).value_or("");
    if (algorithm.empty()) {
      algorithm = device.fastest_algorithm(request);
      if (algorithm.empty()) continue;
      cache.add(key, algorithm);
    }
    choices.emplace(what, std::move(algorithm));
  }
  return to_text(choices);
}

void take_algorithms(Device& device, const std::string& text) {
  device.take_algorithms(parse_algorithms(text));
}

}  // namespace lockstep::cuda
