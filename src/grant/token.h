// SPDX-License-Identifier: Apache-2.0
// The token that Allocate puts into a container's environment instead of devices, because the
// kubelet does not name the pod for which it allocates:
//
//   v1:<nonce, hex>:<HMAC-SHA256 of "resource|nonce|ids", hex>:<id>,<id>
//
// Allocate writes nothing to disk: the token holds all that the agent needs later, and the
// signature lets the agent reject forged tokens. The nonce starts with the creation time, so the
// agent can forget used nonces once their tokens have expired. Pure, except for the key file and
// the kernel's random numbers; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera::grant {

// 8 bytes of milliseconds since 1970, big endian, then 8 random bytes.
using Nonce = std::array<unsigned char, 16>;

struct TokenContent {
  Nonce nonce;
  std::vector<std::string> ids;
};

Nonce NewNonce(WallTime now);
// The token's creation time, by the clock of its creator.
WallTime CreationTime(const Nonce& nonce);
std::string NonceText(const Nonce& nonce);
Result<Nonce> ParseNonce(std::string_view hex);

// "nvidia.com/gpu" -> "TESSERA_GRANT_NVIDIA_COM_GPU".
std::string TokenVariable(std::string_view resource);

// Signs and verifies tokens. The key never leaves the object.
class TokenSigner {
 public:
  // REQUIRES: key.size() >= 32.
  explicit TokenSigner(std::string key);

  // Reads the key file `name` in `dir`, or creates it (32 random bytes, mode 0600). DATA_LOSS: the
  // file is shorter than a key. It is not replaced, because the tokens of all pods would become
  // invalid.
  static Result<TokenSigner> Load(const DirFd& dir, const std::string& name);

  std::string Sign(std::string_view resource, const std::vector<std::string>& ids,
                   WallTime now) const;
  // INVALID_ARGUMENT: not a token. PERMISSION_DENIED: not signed with this key, or for another
  // resource. Compares signatures in constant time.
  Result<TokenContent> Verify(std::string_view resource, std::string_view token) const;

 private:
  std::string SignatureOf(std::string_view resource, std::string_view nonce,
                          std::string_view ids) const;
  std::string key_;
};

}  // namespace tessera::grant
