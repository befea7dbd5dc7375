#include "lockstep/io/sha256.hpp"

#include "lockstep/core/input_file.hpp"

#include <fcntl.h>
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};

void check(int result, const char* call) {
  if (result != 1) {
    fail(ExitStatus::internal, "SHA-256 fails ({} of libcrypto); check the installation", call);
  }
}

class Digest final {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), "EVP_DigestInit_ex");
  }
  void add(const char* bytes, std::size_t count) {
    check(EVP_DigestUpdate(context_.get(), bytes, count), "EVP_DigestUpdate");
  }
  /// In hexadecimal. Call once.
  std::string text() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_.get(), digest.data(), &size), "EVP_DigestFinal_ex");
    std::string text;
    text.reserve(2 * std::size_t{size});
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, FreeDigest> context_;
};

}  // namespace

std::string sha256_of(std::string_view text) {
  Digest digest;
  digest.add(text.data(), text.size());
  return digest.text();
}

std::string sha256_of_file(const std::string& path) {
  const Descriptor file = open_input(path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Digest digest;
  std::vector<char> piece(piece_bytes);
  for (std::uint64_t offset = 0;;) {
    const std::size_t count =
        read_input(file, path, offset, std::as_writable_bytes(std::span(piece)));
    if (count == 0) return digest.text();
    digest.add(piece.data(), count);
    offset += count;
  }
}

}  // namespace lockstep
