#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::watch {

/// 256 bits: a key, a nonce, or an HMAC-SHA-256.
using Bytes32 = std::array<unsigned char, 32>;

/// From the cryptographic generator; throws Error(internal) if it has no entropy.
[[nodiscard]] Bytes32 random_bytes();
[[nodiscard]] Bytes32 hmac(const Bytes32& key, std::string_view text);
/// Compares in constant time.
[[nodiscard]] bool equal(const Bytes32& a, const Bytes32& b) noexcept;

/// What an HMAC is used for. It is part of the HMAC, so a captured one is useless for any other
/// purpose.
enum class Purpose : std::int32_t { knock, child_proof, parent_proof, child_key, parent_key };

/// One connection, identical at both ends. Each end contributes a nonce, which prevents replay of
/// earlier messages.
struct Session {
  std::int32_t child = 0;
  std::int32_t parent = 0;
  Bytes32 child_nonce{};
  Bytes32 parent_nonce{};
};
/// HMAC of the purpose and session, keyed with the job's secret.
[[nodiscard]] Bytes32 derive(const Bytes32& secret, Purpose purpose, const Session& session);
/// The proof of the child's knock with this count.
[[nodiscard]] Bytes32 knock_proof(const Bytes32& secret, std::int32_t child, std::int32_t parent,
                                  std::uint64_t count);

}  // namespace lockstep::watch
