#include "data/label_file.hpp"

#include "fuzz.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::fuzz {

/// The first byte selects the parser; for labels with ids, text up to "%" has the ids.
void run(Bytes bytes) {
  if (bytes.empty()) return;
  const std::vector<std::string> images{"a b.png", "val_1.JPEG", "val_2.JPEG"};
  const std::vector<std::string> classes{"2", "n01", "n02"};
  const std::string text(bytes.begin() + 1, bytes.end());
  const auto check_labels = [&](const std::string& labels_text, const ClassIds* ids) {
    const auto labels = parse_labels({.path = "labels", .text = labels_text},
                                     {.images = images, .classes = classes, .class_ids = ids});
    const bool good = labels.size() == images.size() &&
                      std::all_of(labels.begin(), labels.end(),
                                  [](std::int32_t label) { return label >= 0 && label < 3; });
    if (!good) __builtin_trap();
  };
  accepts([&] {
    switch (bytes[0] % 3) {
      case 0:
        check_labels(text, nullptr);
        break;
      case 1: {
        const std::size_t end = std::min(text.find('%'), text.size());
        const ClassIds ids = parse_class_ids({.path = "ids", .text = text.substr(0, end)});
        check_labels(text.substr(std::min(end + 1, text.size())), &ids);
        break;
      }
      default:
        if (names_of(classes, {.path = "names", .text = text}).size() != 3) __builtin_trap();
    }
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
