#include "class_results.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep {

void add_to_classes(const EvaluatedSamples& samples, std::span<ClassResult> classes) {
  for (std::size_t n = 0; n < samples.labels.size(); ++n) {
    const auto label = static_cast<std::size_t>(samples.labels[n]);
    const auto row = samples.logits.subspan(n * classes.size(), classes.size());
    const bool hit = std::ranges::none_of(
        row, [&](float logit) { return logit > row[label] || std::isnan(logit); });
    ++classes[label].samples;
    classes[label].top1 += hit ? 1 : 0;
  }
}

}  // namespace lockstep
