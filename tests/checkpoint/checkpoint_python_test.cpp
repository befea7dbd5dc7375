#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "checkpoint/example_checkpoint.hpp"

#include <cstdio>
#include <cstdlib>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr const char* python = LOCKSTEP_PYTHON;

bool run_python(const TemporaryDirectory& directory, const std::string& code) {
  write_file(directory / "script.py", code);
  const std::string command = fmt::format("{} {}", python, directory / "script.py");
  return std::system(command.c_str()) == 0;
}

bool has_h5py() {
  const TemporaryDirectory directory;
  if (run_python(directory,
                 "try:\n    import h5py\nexcept ImportError:\n    raise SystemExit(1)\n"))
    return true;
  std::fprintf(stderr, "skipped: %s has no h5py\n", python);
  return false;
}

}  // namespace

BOOST_AUTO_TEST_CASE(h5py_reads_what_is_written) {
  if (!has_h5py()) return;
  const TemporaryDirectory directory;
  write_checkpoint(directory / "a.h5", example_checkpoint());

  BOOST_TEST(run_python(directory,
                        "import h5py, numpy\n"
                        "f = h5py.File('" +
                            directory / "a.h5" +
                            "', 'r')\n"
                            R"(
assert f.attrs['format'].decode() == 'lockstep-checkpoint' and f.attrs['classes'] == 10
assert list(f.attrs['mean']) == [0.5, 0.25, 0.125]
assert [f.attrs['image_' + name] for name in ('channels', 'height', 'width')] == [3, 32, 48]
assert [n.decode() for n in f.attrs['class_names']] == ['aeroplane', '', 'gr\u00fcn']
w = f['model/stem.weight']
assert w.dtype == numpy.float32 and w.shape == (16, 3, 3, 3)
assert abs(w[0, 0, 0, 0] - 12.37) < 1e-5
assert set(f['optimizer/momentum']) == {'stem.weight', 'fc.weight'}
state = f['state'].attrs
assert state['step'] == 12 and state['samples'] == 123456789012 and state['model'].decode() == 'mini_resnet'
assert state['config'].decode() == 'model = mini_resnet\nlr = 0.1\n'
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
assert crc32c(w[()].astype('<f4').tobytes()) == w.attrs['crc32c']
def text(v):
    return v.decode() if isinstance(v, bytes) else '%.17g' % v if isinstance(v, numpy.floating) else str(int(v))
lines = ''.join(sorted(f'{k}={text(v)}\n' for k, v in state.items() if k != 'crc32c'))
assert crc32c(lines.encode()) == state['crc32c']
)"));
}

BOOST_AUTO_TEST_CASE(a_weights_file_of_h5py_is_read) {
  if (!has_h5py()) return;
  const TemporaryDirectory directory;

  BOOST_REQUIRE(run_python(directory,
                           "import h5py, numpy\n"
                           "with h5py.File('" +
                               directory / "w.h5" +
                               "', 'w') as f:\n"
                               R"(
    f['model/fc.weight'] = numpy.arange(6, dtype='f4').reshape(2, 3)
    f['model/bn1.num_batches_tracked'] = numpy.int64(5)
    f.create_dataset('model/conv1.weight', data=numpy.ones((4, 1, 3, 3), 'f4'), chunks=(2, 1, 3, 3), compression='gzip')
    f.attrs['mean'] = [0.5]
    f.attrs['classes'] = 2
    f.attrs['class_names'] = ['cat', 'dog']
)"));
  const Checkpoint checkpoint = read_checkpoint(directory / "w.h5", CheckpointUse::weights);

  BOOST_REQUIRE(checkpoint.model.size() == 2u);
  BOOST_TEST((checkpoint.model[0] ==
              NamedTensor{"conv1.weight", {4, 1, 3, 3}, std::vector<float>(36, 1)}));
  BOOST_TEST((checkpoint.model[1] == NamedTensor{"fc.weight", {2, 3}, {0, 1, 2, 3, 4, 5}}));
  BOOST_TEST(checkpoint.mean == (std::vector<float>{0.5F}), boost::test_tools::per_element());
  BOOST_TEST(checkpoint.classes == 2);
  BOOST_TEST(checkpoint.class_names == (std::vector<std::string>{"cat", "dog"}),
             boost::test_tools::per_element());
}
