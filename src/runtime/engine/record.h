// SPDX-License-Identifier: Apache-2.0
// The record of the changes to an engine's files, kept beside the main file as
// <config>.tessera-record. With it a later run restores the original bytes. If the file has changed
// since, that run removes only Tessera's keys. The original files are kept as <name>.tessera-backup
// in the same directory, where administrators find them. Threads: one.
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
  std::optional<FileState> original;  // nullopt: the file did not exist
  std::string written_text;           // the text that Tessera wrote
  std::vector<TextEdit> undo;
};

struct Record {
  // Set before the first file is changed, cleared when the engine serves again. If a run was
  // interrupted in between, the next run finishes it.
  bool pending = false;
  std::vector<RecordedFile> files;
  std::vector<std::string> dirs;  // created by Tessera, outermost first
  // Lets the next run plan for the same version if the engine does not answer.
  std::optional<Version> engine_version;
  // Whether the engine served the kubelet's interface before the change; if so, it must serve it
  // after the change.
  bool served_cri = false;

  const RecordedFile* Find(const std::string& path) const;
};

std::string RecordPath(const std::string& config);
std::string BackupPath(const std::string& config, const std::string& file);

// nullopt if there is no record. DATA_LOSS: it is damaged, or a backup is missing.
Result<std::optional<Record>> LoadRecord(const HostRoot& host, const std::string& config);
// Writes the backups first, then the record.
Status SaveRecord(const HostRoot& host, const std::string& config, const Record& record);
// Removes the backups of files that are in `old_record` but not in `new_record`.
Status RemoveBackups(const HostRoot& host, const std::string& config, const Record& old_record,
                     const Record& new_record);
Status RemoveRecord(const HostRoot& host, const std::string& config, const Record& record);

}  // namespace tessera::engine
