// SPDX-License-Identifier: Apache-2.0
// The contract between tessera-agent and tessera-runtime: what is asked over the grant socket, what
// is answered, and how both travel. One request per connection:
//
//   4 bytes length, little endian, then that many bytes of JSON; the answer likewise.
//
// Both sides ignore members that they do not know, so that either can be upgraded first. Not for
// deciding anything; that is the agent's. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::grant {

// A request with 16 tokens of 64 GPUs each stays far below; so does the answer to it. A peer that
// announces more is refused before a byte of it is read.
inline constexpr size_t kMaxMessageSize = 256u << 10;
inline constexpr size_t kFrameHeaderSize = 4;
inline constexpr size_t kMaxTokens = 64;
inline constexpr size_t kMaxVariables = 64;
inline constexpr std::string_view kLimitVariablePrefix = "CUDA_DEVICE_";
inline constexpr size_t kMaxNameLength = 1024;
inline constexpr size_t kMaxTokenLength = 64u << 10;

// One entry of the container's environment whose name starts with names::kEnvGrantPrefix.
struct Token {
  std::string variable;  // TESSERA_GRANT_NVIDIA_COM_GPU
  std::string value;     // see token.h
  bool operator==(const Token&) const = default;
};

struct Request {
  enum class Kind {
    kGrant,  // what was this container granted?
    kPing,   // are you there? Answered with an empty grant; needs none of the members below.
  };
  Kind kind = Kind::kGrant;
  std::string pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
  std::vector<Token> tokens;  // none: what it held before there was an agent
  // The container's variables with kLimitVariablePrefix: some of them lower its limits
  // (device/limit_variables.h).
  std::map<std::string, std::string> variables;
  bool operator==(const Request&) const = default;
};

// One GPU. Control nodes (nvidiactl, nvidia-uvm, ...) are not listed: which ones a container needs
// depends on its driver capabilities, which the runtime reads.
struct GrantedDevice {
  std::string uuid;
  int minor = 0;          // N of /dev/nvidiaN
  std::string path;       // in the container
  std::string host_path;  // on the host, dev_root included
  // Numbers of the device node; 0:0 where the agent could not see the node. The runtime then looks.
  uint32_t major_number = 0;
  uint32_t minor_number = 0;
  // What the container may use of it: thousandths of its compute (1000: all; 0: what others leave)
  // and bytes of its memory (0: all).
  int milli = 1000;
  int64_t bytes = 0;
  bool operator==(const GrantedDevice&) const = default;
};

struct GrantedMount {
  std::string host;
  std::string container;
  std::vector<std::string> options;
  bool operator==(const GrantedMount&) const = default;
};

// What a container gets. The runtime finds the driver's files below driver_root by itself.
struct Grant {
  std::vector<GrantedDevice> devices;
  std::vector<GrantedMount> mounts;
  std::map<std::string, std::string> env;  // replaces entries of the same name
  std::string driver_root;                 // host path
  std::string dev_root;                    // host path
  // The host's folder with what limits the container (src/limiter/region.h); empty: nothing does.
  std::string limits_dir;
  std::string agent_version;
  bool operator==(const Grant&) const = default;
};

std::string EncodeRequest(const Request& request);
// INVALID_ARGUMENT or RESOURCE_EXHAUSTED, naming the member.
Result<Request> DecodeRequest(std::string_view json);

// An error travels as its code and message, and comes out as the same Status.
std::string EncodeReply(const Result<Grant>& reply);
Result<Grant> DecodeReply(std::string_view json);

// Length and body as they travel. REQUIRES: body.size() <= kMaxMessageSize.
std::string Frame(std::string_view body);
// The length that a header announces. RESOURCE_EXHAUSTED above kMaxMessageSize, INVALID_ARGUMENT
// for zero.
Result<size_t> FrameLength(const std::array<unsigned char, kFrameHeaderSize>& header);

}  // namespace tessera::grant
