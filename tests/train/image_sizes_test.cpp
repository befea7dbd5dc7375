#include "image_sizes.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

DatasetInfo pixels(std::int64_t height, std::int64_t width) {
  return {.directory = "shards",
          .split = "val",
          .samples = 1000,
          .image = {.channels = 3, .height = height, .width = width},
          .classes = 10,
          .mean = {0.5F, 0.5F, 0.5F},
          .std = {0.5F, 0.5F, 0.5F}};
}

DatasetInfo files(std::int64_t short_side = 0) {
  DatasetInfo info = pixels(0, 0);
  info.encoded = true;
  info.short_side = short_side;
  return info;
}

using Change = std::function<void(Config&)>;

ImageDescription describe(const DatasetInfo& training, const DatasetInfo& validation,
                          const Change& change) {
  Config config;
  change(config);
  return describe_images(resolve_run(config, training, 1), &training, &validation);
}

std::string error_of(const Change& change, const DatasetInfo& data) {
  Config config;
  change(config);
  try {
    static_cast<void>(resolve_run(config, data, 1));
    refuse_resizing(config, data);
  } catch (const Error& error) {
    BOOST_TEST((error.status() == ExitStatus::usage));
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sizes_that_do_not_go_together_are_warned_of) {
  const Change random_areas = [](Config& c) { c.augment = Augment::resized_crop; };
  const Change as_v2 = [](Config& c) {
    c.augment = Augment::resized_crop;
    c.image_size = 176;
    c.eval_size = 224;
    c.eval_resize = 232;
  };
  const auto larger = [](std::int64_t size) {
    return [size](Config& c) {
      c.augment = Augment::resized_crop;
      c.eval_size = size;
    };
  };
  const Change crops = [](Config& c) { c.augment = Augment::crop_flip; };
  struct Case {
    const char* what;
    DatasetInfo data;
    Change change;
    std::vector<std::string> warnings;  ///< a part of each
  };
  const std::vector<Case> cases{
      {"whole files", files(), random_areas, {}},
      {"whole files as V2", files(), as_v2, {}},
      {"whole files, any size", files(), larger(448), {}},
      {"files of 256", files(256), random_areas, {}},
      {"files of 256 as V2", files(256), as_v2, {}},
      {"files of 255",
       files(255),
       random_areas,
       {"short side of at most 255", "resizes the short side to 256"}},
      {"files of 232 as V2", files(232), as_v2, {}},
      {"files of 210 as V2", files(210), as_v2, {"--eval-resize"}},
      {"files that evaluation enlarges",
       files(256),
       larger(288),
       {"short side to 329 for images of 288x288, but split val of shards was packed with "
        "--short-side 256"}},
      {"files that only center crops enlarge", files(224), crops, {"--short-side 256"}},
      {"squares",
       pixels(224, 224),
       random_areas,
       {"makes training images of 224x224 from pixels of 224x224 (areas of already small images "
        "are enlarged, half an image 1.41 times"}},
      {"squares that cover the default ratio",
       pixels(256, 256),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.image_size = 224;
       },
       {}},
      {"images of 4:3",
       pixels(256, 341),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.image_size = 224;
       },
       {}},
      {"squares, training is smaller",
       pixels(224, 224),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.image_size = 160;
         c.eval_size = 224;
       },
       {}},
      {"squares, training becomes larger",
       pixels(224, 224),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.image_size = 128;
         c.image_size_schedule = {{.size = 160, .epoch = 1}, {.size = 208, .epoch = 2}};
       },
       {"training images of 208x208"}},
      {"large pixels of which evaluation sees a part",
       pixels(512, 512),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.image_size = 224;
       },
       {"sees 44 % of the short side"}},
      {"large pixels, cropped in training too",
       pixels(512, 512),
       [](Config& c) {
         c.augment = Augment::crop_flip;
         c.image_size = 224;
       },
       {}},
      {"small images", pixels(32, 32), crops, {}},
      {"small images as they are", pixels(28, 28), [](Config&) {}, {}},
      {"small images, resized", pixels(32, 32), random_areas, {"--augment crop-flip"}},
      {"generated images",
       pixels(224, 224),
       [](Config& c) {
         c.augment = Augment::resized_crop;
         c.synthetic = true;
       },
       {}},
  };
  for (const auto& [what, data, change, expected] : cases) {
    BOOST_TEST_CONTEXT(what) {
      const std::vector<std::string> found = describe(data, data, change).warnings;

      BOOST_TEST_REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        BOOST_TEST(contains(found[i], expected[i]), found[i]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_line_says_how_images_are_made) {
  const auto line = [](const DatasetInfo& training, const DatasetInfo& validation,
                       const Change& change) {
    return describe(training, validation, change).line;
  };

  BOOST_TEST(line(files(), files(), [](Config& c) { c.augment = Augment::resized_crop; }) ==
             "JPEG files; training resizes random areas to 224x224 (bilinear); evaluation resizes "
             "the short side to 256 (bilinear), crops 224x224");
  BOOST_TEST(line(files(256), pixels(224, 224),
                  [](Config& c) {
                    c.augment = Augment::resized_crop;
                    c.train_interpolation = ResizeFilter::random;
                    c.image_size = 160;
                    c.eval_size = 224;
                    c.image_size_schedule = {{.size = 192, .epoch = 1}};
                  }) ==
             "JPEG files with a short side of at most 256; training resizes random areas to "
             "160x160, later 192x192 (random); pixels of 224x224; evaluation takes them whole");
  BOOST_TEST(
      line(pixels(32, 32), pixels(32, 40), [](Config& c) { c.augment = Augment::crop_flip; }) ==
      "pixels of 32x32; training pads by 4 and crops 32x32 at random; pixels of "
      "32x40; evaluation crops the centre 32x32");
  BOOST_TEST(
      line(files(), files(),
           [](Config& c) {
             c.image_size = 64;
             c.eval_resize = 70;
             c.eval_interpolation = ResizeFilter::bicubic;
           }) ==
      "JPEG files; training resizes the short side to 73 (bilinear), crops 64x64; evaluation "
      "resizes the short side to 70 (bicubic), crops 64x64");
  const DatasetInfo data = files();
  BOOST_TEST(describe_images(resolve_run({}, data, 1), nullptr, &data).line ==
             "JPEG files; evaluation resizes the short side to 256 (bilinear), crops 224x224");
}

BOOST_AUTO_TEST_CASE(a_resize_that_evaluation_cannot_make_is_refused) {
  const Change too_small = [](Config& c) {
    c.eval_size = 288;
    c.eval_resize = 256;
  };
  BOOST_TEST(contains(error_of(too_small, files()),
                      "--eval-resize 256 is smaller than images of 288x288"));
  BOOST_TEST(error_of([](Config& c) { c.eval_resize = 224; }, files()) == "");
  BOOST_TEST(contains(error_of([](Config& c) { c.eval_crop_ratio = 0.001; }, files()),
                      "resizes the short side to 224000"));
  for (const Change& change : std::vector<Change>{
           [](Config& c) { c.eval_crop_ratio = 0.875; }, [](Config& c) { c.eval_resize = 40; },
           [](Config& c) { c.eval_interpolation = ResizeFilter::bicubic; }}) {
    BOOST_TEST(contains(error_of(change, pixels(32, 32)), "stored as pixels of 32x32"));
    BOOST_TEST(error_of(
                   [&](Config& c) {
                     c.image_size = 32;
                     change(c);
                   },
                   files()) == "");
  }
  BOOST_TEST(error_of([](Config&) {}, pixels(32, 32)) == "");
}

BOOST_AUTO_TEST_CASE(a_run_on_files_states_its_ratio) {
  BOOST_TEST(resolve_run({}, files(), 1).config.eval_crop_ratio == 0.875);
  BOOST_TEST(resolve_run({}, pixels(32, 32), 1).config.eval_crop_ratio == 0);
  Config config;
  config.eval_resize = 235;
  const RunPlan plan = resolve_run(config, files(), 1);
  BOOST_TEST(plan.config.eval_crop_ratio == 0);
  BOOST_TEST(evaluation_short_side(plan) == 235);
  BOOST_TEST(resizing_options(plan.config) == "--eval-resize 235");
}
