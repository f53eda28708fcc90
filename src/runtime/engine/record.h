// SPDX-License-Identifier: Apache-2.0
// What "configure" did to an engine's files, kept beside the main file as <config>.tessera-record,
// so that a later run can take it back byte for byte, or key by key where somebody has changed the
// file since. The original bytes lie as <name>.tessera-backup in the same folder, for people too.
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"
#include "src/runtime/engine/plan.h"

namespace tessera::engine {

struct RecordedFile {
  std::string path;
  Format format = Format::kToml;
  std::optional<FileState> original;  // nothing: it did not exist
  std::string wrote;
  std::vector<TextEdit> undo;
};

struct Record {
  // Written before the first file is touched, cleared when the engine has proved that it serves: a
  // run that was cut off in between is finished by the next one.
  bool pending = false;
  std::vector<RecordedFile> files;
  std::vector<std::string> folders;  // that did not exist, outermost first
  // So that a run that meets a silent engine plans as the one before.
  std::optional<Version> engine_version;
  // The engine served the kubelet's interface before the change, so it must serve it after the
  // change.
  bool served_cri = false;

  const RecordedFile* Find(const std::string& path) const;
};

std::string RecordPath(const std::string& config);
std::string BackupPath(const std::string& config, const std::string& file);

// Nothing where there is no record. DATA_LOSS: it is damaged, or a backup is missing.
Result<std::optional<Record>> LoadRecord(const HostRoot& host, const std::string& config);
// Backups first, then the record.
Status SaveRecord(const HostRoot& host, const std::string& config, const Record& record);
// Removes the backups of files that `record` had and `kept` has not.
Status RemoveBackups(const HostRoot& host, const std::string& config, const Record& record,
                     const Record& kept);
Status RemoveRecord(const HostRoot& host, const std::string& config, const Record& record);

}  // namespace tessera::engine
