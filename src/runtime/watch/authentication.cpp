#include "authentication.hpp"

#include "lockstep/core/error.hpp"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>
#include <string>

namespace lockstep::watch {
namespace {

[[noreturn]] void refuse(const char* call) {
  std::array<char, 256> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  fail(ExitStatus::internal,
       "the watchdog cannot authenticate other ranks ({}: {}); start with --watchdog-seconds 0 to "
       "do without it",
       call, reason.data());
}

/// Keeps OpenSSL initialized at exit: the watchdog's thread may use it while another thread exits.
void keep_until_the_end() {
  static const bool done = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  static_cast<void>(done);
}

}  // namespace

Bytes32 random_bytes() {
  keep_until_the_end();
  Bytes32 bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) refuse("RAND_bytes");
  return bytes;
}

Bytes32 hmac(const Bytes32& key, std::string_view text) {
  keep_until_the_end();
  Bytes32 result{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), result.data(),
           &size) == nullptr ||
      size != result.size()) {
    refuse("HMAC");
  }
  return result;
}

bool equal(const Bytes32& a, const Bytes32& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Bytes32 derive(const Bytes32& secret, Purpose purpose, const Session& session) {
  std::string text = "lockstep watchdog 1";
  const auto add = [&](const auto& value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(purpose);
  add(session.child);
  add(session.parent);
  add(session.child_nonce);
  add(session.parent_nonce);
  return hmac(secret, text);
}

Bytes32 knock_proof(const Bytes32& secret, std::int32_t child, std::int32_t parent,
                    std::uint64_t count) {
  Session session{.child = child, .parent = parent};
  std::memcpy(session.child_nonce.data(), &count, sizeof count);
  return derive(secret, Purpose::knock, session);
}

}  // namespace lockstep::watch
