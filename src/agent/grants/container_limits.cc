// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/container_limits.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "src/base/file.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {
namespace {

// Pod UIDs and container names have only these characters; others could traverse the path.
Status CheckName(const std::string& name) {
  const bool has_valid_characters =
      !name.empty() && name.size() <= 253 && std::ranges::all_of(name, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
      });
  if (has_valid_characters && name[0] != '.') return Status::Ok();
  return Error(Code::kInvalidArgument, "\"{}\" is not the name of a pod or container", name);
}

Status LimitsError(const std::string& path, int error) {
  return error == EPROTO ? Error(Code::kFailedPrecondition,
                                 "{} was written by another version of tessera-agent: delete the "
                                 "pod, so that it is created again",
                                 path)
                         : Status::FromErrno(path, error);
}

}  // namespace

std::string LimitsPath(const std::string& dir, const GrantLedger::Key& key) {
  return JoinPath(JoinPath(JoinPath(dir, key.first.str()), key.second), limiter::kLimitsFile);
}

Result<std::string> ContainerLimits::Write(const ContainerRef& holder,
                                           const std::vector<grant::GrantedDevice>& devices) {
  if (std::ranges::all_of(devices, [](const auto& device) { return device.bytes == 0; }))
    return std::string();
  RETURN_IF_ERROR(CheckName(holder.pod_uid.str()));
  RETURN_IF_ERROR(CheckName(holder.container));
  const std::string dir = JoinPath(JoinPath(dir_, holder.pod_uid.str()), holder.container);
  // Only root can enter `dir_`. `dir` is mounted into the container, whose users must be able to
  // read it.
  RETURN_IF_ERROR(MakeDirs(dir_, 0700));
  RETURN_IF_ERROR(MakeDirs(dir));
  const std::string path = JoinPath(dir, limiter::kLimitsFile);
  limiter::LimitsFile file;
  if (const int error = file.Open(path.c_str()); error != 0) return LimitsError(path, error);
  file.SetFailOpen(FailsOpen(holder));
  for (const grant::GrantedDevice& device : devices) {
    int error = file.SetMemory(device.uuid.c_str(), static_cast<uint64_t>(device.bytes));
    // The limiter enforces this rate, as cap and as floor, until the arbiter writes an allowance,
    // whose cap may exceed the share. A share of 0 or 1000 thousandths is not limited.
    const double rate = device.milli % 1000 / 1000.0;
    if (error == 0) error = file.SetCompute(device.uuid.c_str(), rate, rate);
    if (error != 0) return LimitsError(fmt::format("{}: {}", path, device.uuid), error);
  }
  return dir;
}

bool ContainerLimits::HasMemoryLimits(const ContainerRef& holder,
                                      const std::vector<grant::GrantedDevice>& devices) const {
  limiter::LimitsFile file;
  const std::string path = LimitsPath(dir_, GrantLedger::KeyOf(holder));
  if (!PathExists(path) || file.Open(path.c_str()) != 0) return false;
  return std::ranges::all_of(devices, [&](const grant::GrantedDevice& device) {
    if (device.bytes == 0) return true;
    const int index = file.Find(device.uuid.c_str());
    return index >= 0 &&
           file.limits().gpus[index].memory.load() == static_cast<uint64_t>(device.bytes);
  });
}

void ContainerLimits::RemoveExcept(const std::map<GrantLedger::Key, GrantLedger::Entry>& entries) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const fs::directory_entry& pod : fs::directory_iterator(dir_, error)) {
    std::error_code inner;
    bool is_held = false;
    for (const fs::directory_entry& container : fs::directory_iterator(pod.path(), inner)) {
      if (!container.is_directory(inner)) continue;
      if (entries.contains({Uid(pod.path().filename().string()), container.path().filename()})) {
        is_held = true;
      } else {
        fs::remove_all(container.path(), inner);
      }
    }
    if (!is_held) fs::remove_all(pod.path(), inner);
  }
}

}  // namespace tessera::agent
