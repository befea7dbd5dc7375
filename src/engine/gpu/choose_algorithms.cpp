#include "choose_algorithms.hpp"

#include <sstream>
#include <utility>

namespace lockstep::gpu {
namespace {

std::string lines_of_others(const std::string& text, const std::string& library) {
  const std::string prefix = library + '\t';
  std::string others;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(prefix)) others.append(line).push_back('\n');
  }
  return others;
}

}  // namespace

std::string choose_algorithms(Device& device, const Graph& graph, Precision precision,
                              std::int64_t batch_size, const std::string& known,
                              AlgorithmCache& cache) {
  const std::string library = device.convolutions().name();
  const std::string prefix = library + '\t';
  // Includes those for other batch sizes and precisions, which the run may use again.
  AlgorithmChoices choices = parse_algorithms(known, library);
  for (const ConvolutionRequest& request : requests_of(graph, precision, batch_size)) {
    const std::string what = request.text();
    if (choices.contains(what)) continue;
    const std::string key = prefix + what;
    std::string algorithm = cache.find(key).value_or("");
    if (algorithm.empty()) {
      algorithm = device.convolutions().fastest(request);
      if (algorithm.empty()) continue;
      cache.add(key, algorithm);
    }
    choices.emplace(what, std::move(algorithm));
  }
  return lines_of_others(known, library) + to_text(choices, library);
}

void set_algorithms(Device& device, const std::string& text) {
  ConvolutionLibrary& library = device.convolutions();
  library.set_algorithms(parse_algorithms(text, library.name()));
}

}  // namespace lockstep::gpu
