#include "lockstep/core/run_holder.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(a_lock_names_its_holder) {
  const RunHolder holder = parse_run_holder(
      R"({"job":"Slurm job 5","host":"n1","boot":"b","process":7,"started":"now","token":"t"})");

  BOOST_TEST(name_of(holder) == "Slurm job 5 on n1");
  BOOST_TEST(holder.process == 7);
  BOOST_TEST(holder.token == "t");
}

BOOST_AUTO_TEST_CASE(what_a_torn_or_edited_lock_does_not_tell_keeps_its_default) {
  const std::string unknown = "another job on an unknown host";
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text :
       {std::string(), std::string(R"({"job":"Slu)"), deep, std::string("[]")}) {
    BOOST_TEST(name_of(parse_run_holder(text)) == unknown);
  }
  const RunHolder edited =
      parse_run_holder(R"({"job":"a","host":"n1","process":1e300,"token":"t"})");
  BOOST_TEST(name_of(edited) == "a on n1");
  BOOST_TEST(edited.process == 0);
}
