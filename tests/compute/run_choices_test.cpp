#include "../../src/compute/run_choices.hpp"

#include <boost/test/unit_test.hpp>

#include <array>

using namespace lockstep;

namespace {

const std::string fp32 = "64x8x8 to 64, padding 1: winograd direct direct\n";
const std::string bf16 = "64x8x8 to 64, padding 1: direct direct winograd\n";
const std::string gpu = "a GPU, cuDNN 9.8\tforward of 64x8x8\tengine 1\n";

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_keeps_the_choices_of_each_kind) {
  struct Choice {
    ChoiceKind kind;
    const std::string& text;
  };
  const std::array all{Choice{ChoiceKind::gpu, gpu}, Choice{ChoiceKind::cpu_bf16, bf16},
                       Choice{ChoiceKind::cpu_fp32, fp32}};
  std::string run;
  for (const Choice& each : all) run = with_choices(each.kind, each.text, run);
  for (const Choice& each : all) BOOST_TEST(choices_of(each.kind, run) == each.text);

  run = with_choices(ChoiceKind::cpu_bf16, fp32, run);
  BOOST_TEST(choices_of(ChoiceKind::cpu_bf16, run) == fp32);
  run = with_choices(ChoiceKind::gpu, "", run);
  BOOST_TEST(choices_of(ChoiceKind::gpu, run) == "");
  BOOST_TEST(choices_of(ChoiceKind::cpu_fp32, run) == fp32);
}

// Programs without choices in bf16 wrote nothing else.
BOOST_AUTO_TEST_CASE(choices_in_fp32_are_stored_as_the_engine_writes_them) {
  BOOST_TEST(with_choices(cpu_choices(Precision::fp32), fp32, "") == fp32);
  BOOST_TEST(choices_of(cpu_choices(Precision::bf16), fp32) == "");
}
