// SPDX-License-Identifier: Apache-2.0
// One OCI bundle's config.json, read, edited and written back without losing what we do not know:
// members of newer runtime specs stay, in place and to the letter. Not for deciding what to edit.
// Threads: one.
//
// The file is replaced by rename in the bundle's folder with its mode and owner, so whoever reads
// it sees the old or the new one. It is not flushed to the disk: a bundle does not outlive a crash.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/oci/device_node.h"
#include "src/oci/env_list.h"

namespace tessera::oci {

inline constexpr size_t kMaxConfigSize = 64u << 20;

struct Mount {
  std::string destination;
  std::string type;
  std::string source;
  std::vector<std::string> options;
  bool operator==(const Mount&) const = default;
};

// "/dev//x/../shm/" -> "/dev/shm". By text alone; links are not looked at.
std::string CleanPath(std::string_view path);
// Is `path` `dir`, or below it? Both clean.
bool IsBelow(std::string_view path, std::string_view dir);
// What a container has at the clean `path`: the last mount at or above it, of those in the order of
// the document; null: its root file system.
const Mount* MountOver(const std::vector<Mount>& mounts, std::string_view path);

class ConfigDocument {
 public:
  // `file` is config.json's name, in `bundle` unless it is absolute. Errors name the file, and
  // offset and line where it is not JSON. Nothing is made or changed.
  static Result<ConfigDocument> Load(const std::string& bundle,
                                     const std::string& file = "config.json");
  // For tests, and for documents that are never saved.
  static Result<ConfigDocument> Parse(std::string_view text, std::string bundle);

  const std::string& bundle() const { return bundle_; }  // absolute
  const std::string& path() const { return path_; }
  // root.path, absolute. INVALID_ARGUMENT where the document has none.
  Result<std::string> RootPath() const;
  bool IsRootReadOnly() const;

  std::optional<std::string> Annotation(std::string_view name) const;
  // Is there any annotation whose name starts so?
  bool HasAnnotationPrefix(std::string_view prefix,
                           std::initializer_list<std::string_view> except = {}) const;
  std::string CgroupsPath() const;  // empty where it is not said
  std::string MountLabel() const;   // SELinux's, of this container's files; empty without SELinux

  // process.env.
  EnvView env() const;
  // Makes it where it is missing. INVALID_ARGUMENT where it is no list.
  Result<EnvList> MutableEnv();

  // What can be read as mounts; entries that make no sense are the low-level runtime's to refuse.
  std::vector<Mount> Mounts() const;
  // Replaces mounts with the same destination, and appends.
  Status AddMount(const Mount& mount);
  // Removes mounts whose source is `dir` or below it.
  void EraseMountsFrom(std::string_view dir);

  // Removes the nodes /dev/nvidia<number>: an engine gives a privileged container all of the
  // host's.
  void EraseGpuNodes();
  // Makes the node, replacing one of the same path.
  Status AddDevice(const DeviceNode& node);
  // Lets the container's cgroup read and write the device; not mknod it.
  Status AllowDevice(const DeviceNode& node);
  // A privileged container's cgroup lets it open any device.
  bool AllowsAllDevices() const;
  // Behind such a rule: forbids this device.
  Status DenyDevice(const DeviceNode& node);
  Status AddGroup(uint32_t gid);

  const Json& json() const { return json_; }
  // Replaces the file. Errors are of ReplaceFile.
  Status Save() const;

 private:
  ConfigDocument(Json json, std::string bundle, std::string path)
      : json_(std::move(json)), bundle_(std::move(bundle)), path_(std::move(path)) {}

  Status AddRule(Json rule);

  Json json_;
  std::string bundle_;
  std::string path_;
};

}  // namespace tessera::oci
