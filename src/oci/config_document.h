// SPDX-License-Identifier: Apache-2.0
// Reads, edits and writes the config.json of an OCI bundle without losing unknown content: members
// of newer runtime specs stay unchanged and in place. Does not decide what to edit. Threads: one.
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

// "/dev//x/../shm/" -> "/dev/shm". Text only; does not resolve links.
std::string CleanPath(std::string_view path);
// Whether `path` is `dir` or below it. Both must be clean.
bool IsBelow(std::string_view path, std::string_view dir);
// The last mount, in document order, at or above the clean `path`; null if the path belongs to the
// container's root file system.
const Mount* FindMountOver(const std::vector<Mount>& mounts, std::string_view path);

class ConfigDocument {
 public:
  // `file` is config.json's name, relative to `bundle` unless it is absolute. Errors name the file,
  // and for invalid JSON the offset and line. Changes nothing.
  static Result<ConfigDocument> Load(const std::string& bundle,
                                     const std::string& file = "config.json");
  // For tests, and for documents that are never saved.
  static Result<ConfigDocument> Parse(std::string_view text, std::string bundle);

  const std::string& bundle() const { return bundle_; }  // absolute
  const std::string& path() const { return path_; }
  // root.path, absolute. INVALID_ARGUMENT if the document has none.
  Result<std::string> RootPath() const;
  bool IsRootReadOnly() const;

  std::optional<std::string> Annotation(std::string_view name) const;
  // Whether any annotation, except those listed, has this prefix.
  bool HasAnnotationWithPrefix(std::string_view prefix,
                               std::initializer_list<std::string_view> except = {}) const;
  std::string CgroupsPath() const;  // empty if not set
  std::string MountLabel() const;  // SELinux label of this container's files; empty without SELinux

  // process.env.
  EnvView env() const;
  // Creates the list if it is missing. INVALID_ARGUMENT if it is not a list.
  Result<EnvList> MutableEnv();

  // The mounts with a destination. The low-level runtime rejects other mounts.
  std::vector<Mount> Mounts() const;
  // Appends the mount and removes existing mounts with the same destination.
  Status AddMount(const Mount& mount);
  // Removes mounts whose source is `dir` or below it.
  void EraseMountsFrom(std::string_view dir);

  // Removes the nodes /dev/nvidia<number>. Engines give the nodes of all GPUs to a privileged
  // container.
  void EraseGpuNodes();
  // Adds the node and replaces a node with the same path.
  Status AddDevice(const DeviceNode& node);
  // Allows the container's cgroup to read and write the device, but not mknod.
  Status AllowDevice(const DeviceNode& node);
  // Whether a rule lets the cgroup read or write every GPU: a rule for every character device, as
  // for privileged containers, or a rule "c 195:*".
  bool AllowsEveryGpu() const;
  // Removes the rules "c 195:*".
  void EraseGpuRules();
  // Appends a rule that forbids this device; it wins over an earlier rule that allows all devices.
  // If the document has a rule "c *:*", runc rejects the new rule, and with crun and cgroup v1 the
  // kernel ignores it.
  Status DenyDevice(const DeviceNode& node);
  Status AddGroup(uint32_t gid);
  // Sets a file of the container's cgroup v2, such as "memory.high", unless the engine has set it.
  Status SetUnified(std::string_view file, std::string_view value);

  const Json& json() const { return json_; }
  // Replaces the file. Errors as from ReplaceFile.
  Status Save() const;

 private:
  ConfigDocument(Json json, std::string bundle, std::string path)
      : json_(std::move(json)), bundle_(std::move(bundle)), path_(std::move(path)) {}

  Status AddRule(Json rule);

  Json json_;
  std::string bundle_;
  std::string path_;
};

// Replaces a file that an engine wrote for one start: the config.json of a bundle, or the process
// description of an exec. `path` must exist; the new file gets its owner and mode. Readers see the
// old or the new file. Nothing is flushed to disk, because no engine starts from such a file after
// a crash. NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (full disk): the old file is unchanged.
Status ReplaceFile(const std::string& path, std::string_view data);

}  // namespace tessera::oci
