#include "skipped_samples.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <cstdint>
#include <map>
#include <utility>

namespace lockstep {

void write_skipped_list(const FilePath& path, const PackSource& source,
                        const std::vector<SkippedSample>& skipped) {
  std::string text;
  const auto add = [&](const std::string& entry, const std::string& reason) {
    text += fmt::format("{}\t{}\n", escape_line(entry), escape_line(reason));
  };
  for (const auto& entry : source.info().fates.unused()) add(entry.path, entry.reason);
  for (const SkippedSample& sample : skipped) {
    add(source.describe(sample.part, sample.index), sample.reason);
  }
  write_text_atomically(path, text);
}

void require_most_of_each_class(const PackSource& source, const std::vector<SkippedSample>& skipped,
                                const std::string& list) {
  if (skipped.empty()) return;
  struct Count {
    std::int64_t samples = 0;
    std::int64_t skipped = 0;
    const SkippedSample* first = nullptr;
  };
  std::map<std::pair<SourcePart, std::int64_t>, Count> counts;
  for (const SkippedSample& sample : skipped) {
    Count& count = counts[{sample.part, source.label(sample.part, sample.index)}];
    if (count.skipped++ == 0) count.first = &sample;
  }
  for (const SourcePart part : {SourcePart::train, SourcePart::val}) {
    for (std::int64_t i = 0; i < source.samples(part); ++i) {
      const auto found = counts.find({part, source.label(part, i)});
      if (found != counts.end()) ++found->second.samples;
    }
  }
  for (const auto& [key, count] : counts) {
    if (count.skipped * 2 <= count.samples) continue;
    const auto& [part, label] = key;
    const std::vector<std::string>& names = source.info().class_names;
    fail(ExitStatus::bad_input,
         "{} of {} {} images of class {} cannot be read (more than half is too many to skip; {} "
         "lists all), {} among them: {}",
         count.skipped, count.samples, part == SourcePart::train ? "training" : "test",
         names.empty() ? std::to_string(label) : names[static_cast<std::size_t>(label)], list,
         source.describe(part, count.first->index), count.first->reason);
  }
}

}  // namespace lockstep
