// replay FOLDER...: runs a fuzz target once over each input in the folders, without libFuzzer. A
// crash, or an exception other than Error, ends the process; the last input printed caused it.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      std::vector<std::uint8_t> input(bytes.size());
      std::ranges::copy(bytes, input.begin());
      std::cout << entry.path().filename().string() << std::endl;
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++count;
    }
  }
  std::cout << count << " inputs" << std::endl;
  return count > 0 ? 0 : 1;
}
