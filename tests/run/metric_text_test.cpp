#include "lockstep/run/metric_text.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace lockstep;

namespace {

MetricValues means() {
  MetricValues result;
  for (std::size_t i = 0; i < metric_table.size(); ++i)
    result[i] = 0.5 / static_cast<double>(i + 1);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_has_each_metric_by_its_title) {
  BOOST_TEST(percent_text(means()) == "top-1 50.00 %, top-5 25.00 %, confidence 16.67 %");
  BOOST_TEST(fraction_text(means()) == "top-1 0.5000, top-5 0.2500, confidence 0.1667");
}

BOOST_AUTO_TEST_CASE(an_object_has_each_metric_by_its_name) {
  Json all{{"loss", 1}};
  Json some = Json::object();

  add_metrics(all, means());
  add_metrics(some, means(), 1, "ema_");

  BOOST_TEST(all.size() == 1 + metric_table.size());
  for (std::size_t i = 0; i < metric_table.size(); ++i) {
    BOOST_TEST(all.at(std::string(metric_table[i].name)).get<double>() == means()[i]);
  }
  BOOST_TEST(some.dump() == R"({"ema_top1":0.5})");
}
