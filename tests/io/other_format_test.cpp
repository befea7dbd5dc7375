#include "lockstep/io/other_format.hpp"

#include "io/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <random>

using namespace lockstep;
using namespace lockstep::test;
using namespace std::string_literals;

namespace {

std::string kind(const std::string& bytes, const std::string& path = "weights.h5") {
  const auto found = other_format({.path = path, .bytes = bytes, .size = bytes.size()});
  return found ? found->kind : "";
}

std::string advice(const std::string& bytes) {
  const auto found = other_format({.path = "weights.h5", .bytes = bytes, .size = bytes.size()});
  return found ? found->advice : "";
}

/// The beginning of a zip archive with one member.
std::string zip(const std::string& member, const std::string& content = "") {
  std::string bytes = "PK\x03\x04"s + std::string(22, '\0');
  bytes += static_cast<char>(member.size());
  bytes += "\0\0\0"s + member + content;
  return bytes;
}

std::string tar(const std::string& member) {
  std::string bytes = member;
  bytes.resize(257);
  bytes += "ustar";
  bytes.resize(1024);
  return bytes;
}

/// The message of the Error that opening a file with these bytes throws.
std::string open_message(const std::string& bytes) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    (void)h5::open_file(path);
  } catch (const Error& error) {
    BOOST_TEST(static_cast<int>(error.status()) == static_cast<int>(ExitStatus::bad_input));
    return error.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(weights_of_other_programs_are_recognised) {
  BOOST_TEST(kind(zip("archive/data.pkl")) == "a file of PyTorch's torch.save");
  BOOST_TEST(kind(zip("m/data/0")) == "a TorchScript archive");
  BOOST_TEST(kind("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s) ==
             "a file of PyTorch's torch.save");
  BOOST_TEST(kind(tar("storages")) == "a file of PyTorch's torch.save, of before 2017");
  BOOST_TEST(kind("\x80\x04\x95\x10\0\0\0\0\0\0\0}"s) == "a Python pickle");
  BOOST_TEST(kind("\x02\0\0\0\0\0\0\0{}"s) == "a safetensors file");
  BOOST_TEST(kind("\x08\x07\x12\x07pytorch"s) == "an ONNX model");
  BOOST_TEST(kind("\x01\x02\x03\x04", "net.onnx") == "an ONNX model, by its name");
  BOOST_TEST(kind(zip("metadata.json", "{}..config.json..model.weights.h5")) ==
             "a Keras model (.keras)");
  BOOST_TEST(kind("\x1c\0\0\0TFL3"s) == "a TensorFlow Lite model");
  BOOST_TEST(kind("\x01\x02\x03", "saved_model.pb") == "a TensorFlow graph, by its name");
  BOOST_TEST(kind("\x01\x02\x03", "ckpt.data-00000-of-00001") ==
             "part of a TensorFlow checkpoint, by its name");
  BOOST_TEST(kind("\x01\x02\x03", "ckpt.index") == "part of a TensorFlow checkpoint, by its name");
}

BOOST_AUTO_TEST_CASE(arrays_archives_and_texts_are_recognised) {
  BOOST_TEST(kind(zip("x.npy")) == "a NumPy archive (.npz)");
  BOOST_TEST(kind("\x93NUMPY\x01\0"s) == "a NumPy array (.npy)");
  BOOST_TEST(kind(zip("readme.txt")) == "a zip archive");
  BOOST_TEST(kind(tar("weights.h5")) == "a tar archive");
  BOOST_TEST(kind("\x1f\x8b\x08"s) == "a gzip file");
  BOOST_TEST(kind("BZh91AY") == "a bzip2 file");
  BOOST_TEST(kind("\xfd\x37zXZ\0"s) == "an xz file");
  BOOST_TEST(kind("\n<!DOCTYPE html><html>") == "a web page (HTML)");
  BOOST_TEST(kind("<HTML lang=en>") == "a web page (HTML)");
  BOOST_TEST(kind("404: Not Found\n") == "text");
  BOOST_TEST(kind(" \n") == "blank");
  BOOST_TEST(kind("") == "empty");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  BOOST_TEST(kind(pointer) == "a pointer of Git LFS, in place of the file");
  BOOST_TEST(advice(pointer) == "fetch the file: git lfs pull");
}

BOOST_AUTO_TEST_CASE(other_bytes_and_hdf5_itself_are_not_judged) {
  BOOST_TEST(kind("\x89HDF\r\n\x1a\n"s + std::string(8, '\0')) == "");
  BOOST_TEST(kind(std::string(512, '\0') + "\x89HDF\r\n\x1a\n") == "");
  BOOST_TEST(kind(std::string(4096, '\0')) == "");
  BOOST_TEST(kind("\xff\0\0\0\0\0\0\0{\""s) == "");  // a header that is longer than the file
  BOOST_TEST(kind("\x02\0\0\0\0\0\0\0["s) == "");    // no JSON object
  BOOST_TEST(kind("\x08\x07\xff") == "");            // no field of a model
  BOOST_TEST(kind("\x80\x11\x95") == "");            // no protocol of pickle
}

BOOST_AUTO_TEST_CASE(any_bytes_can_be_judged) {
  std::mt19937 random(1);  // NOLINT(*-msc51-cpp): the same bytes in each run
  const std::vector<std::string> starts{
      "", "PK\x03\x04", "\x80\x02", "\x08\x07\x12", "\x93NU", "<", "\x02\0\0\0\0\0\0\0{"s};
  for (const std::string& start : starts) {
    for (std::size_t size = 0; size < 600; ++size) {
      std::string bytes = start;
      while (bytes.size() < start.size() + size) bytes += static_cast<char>(random());
      (void)other_format({.path = "", .bytes = bytes, .size = bytes.size() + random() % 100});
    }
  }
}

BOOST_AUTO_TEST_CASE(opening_such_a_file_says_what_it_is_and_what_helps) {
  const std::string torch = open_message(zip("archive/data.pkl"));
  const std::string damaged = open_message("\x89HDF\r\n\x1a\n"s + std::string(100, '\x7f'));

  BOOST_TEST(torch.find("/file is a file of PyTorch's torch.save") != std::string::npos, torch);
  BOOST_TEST(torch.find("--init-from and eval --checkpoint read it") != std::string::npos, torch);
  BOOST_TEST(damaged.find("is not a whole HDF5 file") != std::string::npos, damaged);
}
