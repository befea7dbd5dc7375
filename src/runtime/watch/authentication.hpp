#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::watch {

/// 256 bits: a key, a nonce, or an HMAC-SHA-256.
using Bytes32 = std::array<unsigned char, 32>;

/// From the cryptographic generator; Error(internal) where it has no entropy.
[[nodiscard]] Bytes32 random_bytes();
[[nodiscard]] Bytes32 hmac(const Bytes32& key, std::string_view text);
/// In a time that does not depend on the contents.
[[nodiscard]] bool equal(const Bytes32& a, const Bytes32& b) noexcept;

/// What an HMAC is for, and so for nothing else: who takes one from the network cannot use it in
/// another place.
enum class Purpose : std::int32_t { child_proof, parent_proof, child_key, parent_key };

/// One connection, as both of its ends see it. Each end contributes a nonce, so that what either
/// one sent before is of no use to others later.
struct Session {
  std::int32_t child = 0;
  std::int32_t parent = 0;
  Bytes32 child_nonce{};
  Bytes32 parent_nonce{};
};
/// HMAC of the purpose and the session with the job's secret.
[[nodiscard]] Bytes32 derive(const Bytes32& secret, Purpose purpose, const Session& session);

}  // namespace lockstep::watch
