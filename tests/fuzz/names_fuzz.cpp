#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/data/shard_file.hpp"

#include "fuzz.hpp"

#include <algorithm>

namespace lockstep::fuzz {

/// The lines are names of files in a data set's directory; opens all splits that they name.
void run(Bytes bytes) {
  static const Scratch scratch;
  std::filesystem::remove_all(scratch.path());
  std::filesystem::create_directories(scratch.path());
  std::string text(bytes.begin(), bytes.end());
  std::ranges::replace(text, '/', '_');
  std::ranges::replace(text, '\0', '_');
  std::vector<std::string> splits{"train"};
  for (std::size_t begin = 0; begin < text.size() && splits.size() < 8;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string name = text.substr(begin, std::min<std::size_t>(end - begin, 200));
    begin = end + 1;
    if (const auto shard = parse_shard_name(name)) splits.push_back(shard->split);
    if (!name.empty() && name != "." && name != "..") {
      static_cast<void>(scratch.write(name, {}));
    }
  }
  const auto comm = make_self_communicator();
  for (const std::string& split : splits) {
    static_cast<void>(has_split(scratch.path(), split));
    accepts([&] { static_cast<void>(open_dataset(scratch.path(), split, *comm)); });
  }
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
