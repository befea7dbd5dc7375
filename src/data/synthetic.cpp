#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {
namespace {

/// A class's pattern: a grid of this many rows and columns per channel, each cell bright or dark.
constexpr std::int64_t pattern_cells = 4;
/// Out of 255: weak compared to the noise, so a network can learn the pattern, but not at once.
constexpr std::uint32_t pattern_strength = 64;

class SyntheticDataset final : public Dataset {
 public:
  explicit SyntheticDataset(const SyntheticOptions& options) : options_(options) {
    const ImageShape& image = options.image;
    if (options.samples < 1 || options.classes < 1 || image.channels < 1 || image.height < 1 ||
        image.width < 1) {
      fail(
          ExitStatus::usage,
          "synthetic data of {} samples, {} classes and {}x{}x{} pixels (each must be at least 1); "
          "see --synthetic-samples, --classes, --image-size and --channels",
          options.samples, options.classes, image.height, image.width, image.channels);
    }
    const auto channels = static_cast<std::size_t>(image.channels);
    info_ = {.directory = "synthetic",
             .split = "train",
             .samples = options.samples,
             .image = image,
             .classes = options.classes,
             .mean = std::vector<float>(channels, 0.5F),
             .std = std::vector<float>(channels, 0.25F),
             .identity =
                 crc32c(fmt::format("synthetic {} {}x{}x{} {} {}", options.samples, image.height,
                                    image.width, image.channels, options.classes, options.seed))};
  }

  [[nodiscard]] const DatasetInfo& info() const noexcept override { return info_; }

  void read(std::int64_t index, RawSample& sample) const override {
    const ImageShape& image = options_.image;
    // Counters (x, 0) are for samples, (x, 1) for class patterns.
    PhiloxStream random(options_.seed, RandomPurpose::synthetic_data,
                        static_cast<std::uint64_t>(index), 0);
    sample.label =
        static_cast<std::int64_t>(random.next_below(static_cast<std::uint32_t>(options_.classes)));
    const std::uint64_t cells = class_cells(sample.label);
    const auto row_bytes = static_cast<std::size_t>(image.width * image.channels);
    sample.bytes.resize(static_cast<std::size_t>(image.height) * row_bytes);
    random.fill(sample.bytes);
    std::vector<std::uint8_t> pattern(row_bytes);
    std::byte* row = sample.bytes.data();
    std::int64_t y = 0;
    for (std::int64_t cell_row = 0; cell_row < pattern_cells; ++cell_row) {
      fill_pattern(cells, cell_row, pattern);
      for (; y * pattern_cells / image.height == cell_row; ++y, row += row_bytes) {
        for (std::size_t i = 0; i < row_bytes; ++i) {
          const auto noise = static_cast<std::uint16_t>(row[i]);
          row[i] = static_cast<std::byte>(
              static_cast<std::uint16_t>(noise * (256 - pattern_strength) / 256 + pattern[i]));
        }
      }
    }
  }

 private:
  /// What a class adds to each byte of an image row in that row of cells.
  void fill_pattern(std::uint64_t cells, std::int64_t cell_row,
                    std::span<std::uint8_t> pattern) const {
    std::size_t i = 0;
    for (std::int64_t x = 0; x < options_.image.width; ++x) {
      const std::int64_t cell = cell_row * pattern_cells + x * pattern_cells / options_.image.width;
      for (std::int64_t c = 0; c < options_.image.channels; ++c) {
        // 16 cells for each of four channels; further channels reuse their patterns.
        const bool bright = ((cells >> (cell + 16 * (c % 4))) & 1u) != 0;
        pattern[i++] = bright ? pattern_strength : 0;
      }
    }
  }
  [[nodiscard]] std::uint64_t class_cells(std::int64_t label) const noexcept {
    return PhiloxStream(options_.seed, RandomPurpose::synthetic_data,
                        static_cast<std::uint64_t>(label), 1)
        .next_u64();
  }

  SyntheticOptions options_;
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic_dataset(const SyntheticOptions& options) {
  return std::make_unique<SyntheticDataset>(options);
}

}  // namespace lockstep
