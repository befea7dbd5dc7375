#include "class_results.hpp"

#include "lockstep/core/label_rank.hpp"

#include <cstddef>

namespace lockstep {

void add_to_classes(const EvaluatedSamples& samples, std::span<ClassResult> classes) {
  for (std::size_t n = 0; n < samples.labels.size(); ++n) {
    const auto label = static_cast<std::size_t>(samples.labels[n]);
    const auto row = samples.logits.subspan(n * classes.size(), classes.size());
    ++classes[label].samples;
    classes[label].top1 += label_rank(row, samples.labels[n]) < 1 ? 1 : 0;
  }
}

}  // namespace lockstep
