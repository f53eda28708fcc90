// SPDX-License-Identifier: Apache-2.0
#include "src/grant/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::grant {
namespace {

constexpr std::string_view kVersion = "v1";
constexpr size_t kKeySize = 32;
constexpr size_t kTimeSize = 8;
constexpr size_t kMaxIds = 1024;

void FillRandom(unsigned char* data, size_t size) {
  // getrandom returns up to 256 bytes at once. It blocks only until the kernel's pool is seeded.
  ssize_t count;
  do {
    count = ::getrandom(data, size, 0);
  } while (count < 0 && errno == EINTR);
  TESSERA_CHECK(count == static_cast<ssize_t>(size));
}

Result<Fd> CreateKey(const DirFd& dir, const std::string& name) {
  // Creates the key atomically: a crash must not leave a truncated key, which Load rejects.
  const std::string temporary = name + ".new";
  Fd fd(::openat(dir.get(), temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::FromErrno(JoinPath(dir.path(), temporary), errno);
  std::array<unsigned char, kKeySize> key;
  FillRandom(key.data(), key.size());
  RETURN_IF_ERROR(WriteFd(fd.get(), {reinterpret_cast<const char*>(key.data()), key.size()}));
  if (::fsync(fd.get()) != 0) return Status::FromErrno("fsync", errno);
  if (::renameat(dir.get(), temporary.c_str(), dir.get(), name.c_str()) != 0) {
    return Status::FromErrno("rename", errno);
  }
  if (::fsync(dir.get()) != 0) return Status::FromErrno("fsync of the directory", errno);
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return Status::FromErrno("lseek", errno);
  return fd;
}

// The variable may come from a pod's spec or an image instead of the agent.
Status InvalidToken() {
  return Status(
      Code::kInvalidArgument,
      "not a token of tessera-agent, which makes them when the kubelet allocates GPUs: remove the "
      "variable from the pod or the image, and request GPUs with resources.limits");
}

}  // namespace

Nonce NewNonce(WallTime now) {
  Nonce nonce;
  const auto since = now.time_since_epoch();
  uint64_t millis = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  for (size_t i = kTimeSize; i-- > 0; millis >>= 8) nonce[i] = millis & 0xff;
  FillRandom(nonce.data() + kTimeSize, nonce.size() - kTimeSize);
  return nonce;
}

WallTime CreationTime(const Nonce& nonce) {
  uint64_t millis = 0;
  for (size_t i = 0; i < kTimeSize; ++i) millis = millis << 8 | nonce[i];
  // Avoids overflow. The signature keeps a forged time from getting here.
  millis = std::min<uint64_t>(millis, 4'102'444'800'000);  // the year 2100
  return WallTime(std::chrono::milliseconds(millis));
}

std::string NonceText(const Nonce& nonce) {
  return HexEncode({reinterpret_cast<const char*>(nonce.data()), nonce.size()});
}

Result<Nonce> ParseNonce(std::string_view hex) {
  Nonce nonce;
  if (hex.size() != 2 * nonce.size()) return Status(Code::kInvalidArgument, "nonce: wrong length");
  ASSIGN_OR_RETURN(const std::string bytes, HexDecode(hex));
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

std::string TokenVariable(std::string_view resource) {
  std::string name(names::kEnvGrantPrefix);
  for (const char c : resource) {
    const auto u = static_cast<unsigned char>(c);
    name += std::isalnum(u) != 0 ? static_cast<char>(std::toupper(u)) : '_';
  }
  return name;
}

TokenSigner::TokenSigner(std::string key) : key_(std::move(key)) {
  TESSERA_CHECK(key_.size() >= kKeySize);
}

Result<TokenSigner> TokenSigner::Load(const DirFd& dir, const std::string& name) {
  const std::string path = JoinPath(dir.path(), name);
  Fd fd(::openat(dir.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() && errno != ENOENT) return Status::FromErrno(path, errno);
  if (!fd.valid()) {
    ASSIGN_OR_RETURN(fd, CreateKey(dir, name).Annotate("creating " + path));
  }
  ASSIGN_OR_RETURN(std::string key, ReadFd(fd.get(), 4096).Annotate(path));
  if (key.size() < kKeySize) {
    return Error(Code::kDataLoss,
                 "{} has {} bytes, too few for a key: restore the key from a backup, or remove "
                 "this file and delete the GPU pods of this node",
                 path, key.size());
  }
  return TokenSigner(std::move(key));
}

std::string TokenSigner::SignatureOf(std::string_view resource, std::string_view nonce,
                                     std::string_view ids) const {
  const std::string text = fmt::format("{}|{}|{}", resource, nonce, ids);
  std::array<unsigned char, EVP_MAX_MD_SIZE> signature;
  unsigned int size = 0;
  const unsigned char* result = ::HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                                       reinterpret_cast<const unsigned char*>(text.data()),
                                       text.size(), signature.data(), &size);
  TESSERA_CHECK(result != nullptr);
  return HexEncode({reinterpret_cast<const char*>(signature.data()), size});
}

std::string TokenSigner::Sign(std::string_view resource, const std::vector<std::string>& ids,
                              WallTime now) const {
  const std::string nonce = NonceText(NewNonce(now));
  const std::string list = fmt::format("{}", fmt::join(ids, ","));
  return fmt::format("{}:{}:{}:{}", kVersion, nonce, SignatureOf(resource, nonce, list), list);
}

Result<TokenContent> TokenSigner::Verify(std::string_view resource, std::string_view token) const {
  // The IDs are the whole rest of the token, because an ID may contain colons.
  std::array<std::string_view, 3> parts;
  std::string_view rest = token;
  for (std::string_view& part : parts) {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return InvalidToken();
    part = rest.substr(0, colon);
    rest.remove_prefix(colon + 1);
  }
  const auto& [version, nonce, signature] = parts;
  if (version != kVersion) {
    return Error(Code::kUnimplemented,
                 "unsupported token version \"{:.8}\": delete the pod, so that the agent of this "
                 "node creates another",
                 version);
  }
  TokenContent content;
  const Result<Nonce> parsed = ParseNonce(nonce);
  if (!parsed.ok()) return InvalidToken();
  content.nonce = *parsed;
  const std::string expected_signature = SignatureOf(resource, nonce, rest);
  if (signature.size() != expected_signature.size() ||
      CRYPTO_memcmp(signature.data(), expected_signature.data(), signature.size()) != 0) {
    return Error(
        Code::kPermissionDenied,
        "the token for {} was not made by the agent of this node, or was changed: delete the pod, "
        "so that the agent creates another",
        resource);
  }
  for (const std::string_view id : SplitList(rest)) content.ids.emplace_back(id);
  if (content.ids.size() > kMaxIds) {
    return Error(Code::kResourceExhausted, "too many device IDs in one token: {}, maximum {}",
                 content.ids.size(), kMaxIds);
  }
  return content;
}

}  // namespace tessera::grant
