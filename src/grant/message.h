// SPDX-License-Identifier: Apache-2.0
// The protocol between tessera-agent and tessera-runtime on the grant socket: requests, replies and
// their framing. One request per connection:
//
//   4 bytes length, little endian, then that many bytes of JSON; the reply likewise.
//
// Both sides ignore unknown members, so that either can be upgraded first. The agent decides; this
// file only encodes. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/uid.h"

namespace tessera::grant {

// A request with 16 tokens of 64 GPUs each, and its reply, are far below this limit. A message that
// announces more is rejected before its body is read.
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

struct GrantRequest {
  Uid pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
  std::vector<Token> tokens;  // empty: the container started before the agent was installed
  // The container's variables with kLimitVariablePrefix; some of them lower its limits
  // (device/limit_variables.h).
  StringMap variables;
  bool operator==(const GrantRequest&) const = default;
};

// One GPU. Lists no control nodes (nvidiactl, nvidia-uvm, ...): they depend on the container's
// driver capabilities, which only the runtime reads.
struct GrantedDevice {
  std::string uuid;
  int minor = 0;          // N of /dev/nvidiaN
  std::string path;       // in the container
  std::string host_path;  // on the host, dev_root included
  // Numbers of the device node; 0:0 if the agent could not stat it. The runtime then stats it.
  uint32_t major_number = 0;
  uint32_t minor_number = 0;
  // The container's limits: thousandths of the GPU's compute (1000: all; 0: only idle time) and
  // bytes of its device memory (0: all).
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

// The devices, mounts and variables of one container. The runtime finds the driver's files below
// driver_root itself.
struct Grant {
  std::vector<GrantedDevice> devices;
  std::vector<GrantedMount> mounts;
  StringMap env;            // replaces entries of the same name
  std::string driver_root;  // host path
  std::string dev_root;     // host path
  // Host directory with the container's limits (src/limiter/region.h); empty: no limits.
  std::string limits_dir;
  std::string agent_version;
  bool operator==(const Grant&) const = default;
};

// The UUIDs of the granted GPUs, joined by commas.
std::string UuidsOf(const Grant& grant);

std::string EncodeRequest(const GrantRequest& request);
// INVALID_ARGUMENT and RESOURCE_EXHAUSTED name the member.
Result<GrantRequest> DecodeRequest(std::string_view json);

// An error is encoded as its code and message, and decoded as the same Status.
std::string EncodeReply(const Result<Grant>& reply);
Result<Grant> DecodeReply(std::string_view json);

// The encoded length, then the body. REQUIRES: body.size() <= kMaxMessageSize.
std::string Frame(std::string_view body);
// The length in a header. RESOURCE_EXHAUSTED above kMaxMessageSize, INVALID_ARGUMENT for zero.
Result<size_t> FrameLength(const std::array<unsigned char, kFrameHeaderSize>& header);

}  // namespace tessera::grant
