#include "lockstep/comm/broadcast_texts.hpp"

namespace lockstep {

std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined.append(text).push_back('\0');
  return joined;
}

std::vector<std::string> split_texts(std::string_view joined) {
  std::vector<std::string> texts;
  while (!joined.empty()) {
    texts.emplace_back(joined.substr(0, joined.find('\0')));
    joined.remove_prefix(texts.back().size() + 1);
  }
  return texts;
}

std::vector<std::string> broadcast_texts(Communicator& comm,
                                         const std::vector<std::string>& texts) {
  return split_texts(broadcast_text(comm, join_texts(texts)));
}

}  // namespace lockstep
