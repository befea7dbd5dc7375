#include "core/refusal.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(a_program_adds_models_of_its_own) {
  const auto make = [](const char* name) {
    return [name](const ModelOptions& options) {
      Graph graph(name, options.image.shape());
      const ValueId x = graph.flatten(graph.input());
      add_loss(graph, graph.linear(x, {.name = "fc", .out_features = options.classes}), options);
      return graph;
    };
  };
  add_model({"own", make("own")});
  add_model({"other", make("own")});

  BOOST_TEST(make_model("own", {.classes = 7}).outputs() == 7);
  BOOST_TEST(std::ranges::count(model_names(), std::string_view("own")) == 1);
  const auto refused = [&](const char* name) {
    return test::refusal([&] { add_model({name, make(name)}); });
  };
  BOOST_TEST(refused("own").find("there is one") != std::string::npos);
  BOOST_TEST(refused("resnet50").find("there is one") != std::string::npos);
  BOOST_TEST(refused("my own").find("a name has only") != std::string::npos);
  BOOST_TEST(refused("").find("a name has only") != std::string::npos);
  BOOST_TEST(test::refusal([&] {
               add_model({"none", {}});
             }).find("no function") != std::string::npos);
  BOOST_TEST(is_built_in("resnet50"));
  BOOST_TEST(!is_built_in("own"));
  // An option that would do nothing is an error.
  BOOST_TEST(test::refusal([&] {
               (void)make_model("own", {.stem = Stem::deep});
             }).find("--stem does not go") != std::string::npos);
  BOOST_TEST(test::refusal([&] {
               (void)make_model("own", {.width = 8});
             }).find("--width does not go") != std::string::npos);
  add_model({"ten-outputs", [make](ModelOptions options) {
               options.classes = 10;
               return make("ten-outputs")(options);
             }});
  BOOST_TEST(test::refusal([&] {
               (void)make_model("ten-outputs", {.classes = 7});
             }).find("has 10 outputs for 7 classes") != std::string::npos);
  // A checkpoint has the network's name, by which eval and export find the model.
  BOOST_TEST(test::refusal([&] { (void)make_model("other", {}); }).find("is called 'own'") !=
             std::string::npos);
}
