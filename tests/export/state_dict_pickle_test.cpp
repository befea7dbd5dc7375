#include <boost/test/unit_test.hpp>

#include "export/state_dict_pickle.hpp"
#include "io/byte_text.hpp"

using namespace lockstep;
using test::hex;

// The opcodes of Python's pickletools, with their arguments.
BOOST_AUTO_TEST_CASE(a_tensor_is_rebuilt_over_its_storage) {
  const std::vector<StateTensor> tensors{
      {.name = "fc.bias", .shape = {2, 3}, .type = ElementType::float32, .values = {}},
      {.name = "n", .shape = {}, .type = ElementType::int64, .values = {}}};

  const std::string pickle = state_dict_pickle(tensors);

  using namespace std::string_literals;
  const std::string ordered_dict = "ccollections\nOrderedDict\n)R";
  const std::string first = "X\x07\0\0\0fc.bias"s + "ctorch._utils\n_rebuild_tensor_v2\n(" +
                            "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"s +
                            "0X\x03\0\0\0cpuJ\x06\0\0\0tQ"s + "J\0\0\0\0"s +
                            "(J\x02\0\0\0J\x03\0\0\0t"s + "(J\x03\0\0\0J\x01\0\0\0t"s + "\x89" +
                            ordered_dict + "tR";
  const std::string second = "X\x01\0\0\0n"s + "ctorch._utils\n_rebuild_tensor_v2\n(" +
                             "(X\x07\0\0\0storagectorch\nLongStorage\nX\x01\0\0\0"s +
                             "1X\x03\0\0\0cpuJ\x01\0\0\0tQ"s + "J\0\0\0\0"s + "(t(t" + "\x89" +
                             ordered_dict + "tR";
  BOOST_TEST(hex(pickle) == hex("\x80\x02" + ordered_dict + "(" + first + second + "u."));
}
