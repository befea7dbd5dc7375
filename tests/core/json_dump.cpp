// json_dump: for each line of standard input, a text in hexadecimal, prints the JSON that was read
// from it, or "refused".
#include "lockstep/core/json.hpp"

#include <iostream>
#include <string>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string text;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
    const auto json = lockstep::parse_json(text);
    std::cout << (json ? json->dump() : "refused") << "\n";
  }
}
