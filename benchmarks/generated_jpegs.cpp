#include "generated_jpegs.hpp"

#include "lockstep/core/philox.hpp"
#include "lockstep/data/encode.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::benchmark {
namespace {

constexpr std::int64_t distinct = 256;

/// Random values on a grid of `step` pixels, interpolated.
class Noise final {
 public:
  Noise(PhiloxStream& random, const ImageShape& image, std::int64_t step)
      : step_(step), columns_(image.width / step + 2), values_(grid_size(image, step)) {
    for (float& value : values_) value = static_cast<float>(random.next_double()) - 0.5F;
  }
  [[nodiscard]] float at(std::int64_t y, std::int64_t x) const {
    const auto corner = static_cast<std::size_t>(y / step_ * columns_ + x / step_);
    const float down = static_cast<float>(y % step_) / static_cast<float>(step_);
    const float right = static_cast<float>(x % step_) / static_cast<float>(step_);
    const auto row = [&](std::size_t from) {
      return values_[from] + right * (values_[from + 1] - values_[from]);
    };
    const float top = row(corner);
    return top + down * (row(corner + static_cast<std::size_t>(columns_)) - top);
  }

 private:
  static std::size_t grid_size(const ImageShape& image, std::int64_t step) {
    return static_cast<std::size_t>((image.width / step + 2) * (image.height / step + 2));
  }
  std::int64_t step_;
  std::int64_t columns_;
  std::vector<float> values_;
};

/// Noise whose amplitude is proportional to its scale, and weak noise of single pixels.
Image generate_image(std::int64_t index) {
  PhiloxStream random(0, RandomPurpose::synthetic_data, static_cast<std::uint64_t>(index), 0);
  const bool upright = index % 4 == 3;
  Image image;
  image.shape = {.channels = 3, .height = upright ? 500 : 375, .width = upright ? 375 : 500};
  image.pixels.resize(static_cast<std::size_t>(image.shape.height * image.shape.width * 3));
  std::vector<std::pair<float, Noise>> brightness;
  for (std::int64_t step = 128; step >= 2; step /= 2) {
    brightness.emplace_back(14.0F * std::sqrt(static_cast<float>(step)),
                            Noise(random, image.shape, step));
  }
  const Noise red(random, image.shape, 48);
  const Noise blue(random, image.shape, 48);
  std::size_t at = 0;
  for (std::int64_t y = 0; y < image.shape.height; ++y) {
    for (std::int64_t x = 0; x < image.shape.width; ++x) {
      float value = 128.0F;
      for (const auto& [amplitude, noise] : brightness) value += amplitude * noise.at(y, x);
      const float colours[]{value + 90.0F * red.at(y, x), value, value + 90.0F * blue.at(y, x)};
      for (const float colour : colours) {
        image.pixels[at++] = static_cast<std::byte>(std::clamp(colour, 0.0F, 255.0F));
      }
    }
  }
  return image;
}

class GeneratedJpegs final : public Dataset {
 public:
  GeneratedJpegs(std::int64_t samples, std::int64_t classes) : files_(distinct) {
    info_ = {.directory = "generated",
             .split = "train",
             .samples = samples,
             .image = {.channels = 3},
             .encoded = true,
             .classes = classes,
             .mean = std::vector<float>(3, 0.5F),
             .std = std::vector<float>(3, 0.25F)};
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t i = 0; i < distinct; ++i) {
      encode_jpeg(generate_image(i), default_jpeg_quality, files_[static_cast<std::size_t>(i)]);
    }
  }
  [[nodiscard]] const DatasetInfo& info() const noexcept override {
    return info_;
  }
  void read(std::int64_t index, RawSample& sample) const override {
    sample.bytes = files_[static_cast<std::size_t>(index % distinct)];
    sample.label = index % info_.classes;
  }

 private:
  DatasetInfo info_;
  std::vector<std::vector<std::byte>> files_;
};

}  // namespace

std::unique_ptr<Dataset> make_generated_jpegs(std::int64_t samples, std::int64_t classes) {
  return std::make_unique<GeneratedJpegs>(samples, classes);
}

}  // namespace lockstep::benchmark
