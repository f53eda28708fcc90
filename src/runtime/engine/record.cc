// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/record.h"

#include <algorithm>

#include "src/base/file.h"
#include "src/formats/json.h"

namespace tessera::engine {
namespace {

constexpr int64_t kVersion = 1;

Json FileToJson(const RecordedFile& file) {
  Json json = Json::MakeObject();
  json.Set("path", Json::String(file.path));
  json.Set("format", Json::String(file.format == Format::kToml ? "toml" : "json"));
  json.Set("existed", Json::Bool(file.original.has_value()));
  if (file.original) {
    json.Set("mode", Json::Int(file.original->mode));
    json.Set("uid", Json::Int(file.original->uid));
    json.Set("gid", Json::Int(file.original->gid));
    json.Set("selinux", Json::String(file.original->selinux));
  }
  json.Set("wrote", Json::String(file.written_text));
  json.Set("undo", EditsToJson(file.undo));
  return json;
}

Result<RecordedFile> FileFromJson(const HostRoot& host, const std::string& config,
                                  const Json& json) {
  RecordedFile file;
  ASSIGN_OR_RETURN(file.path, json.StringAt("path"));
  const Json* const format = json.Find("format");
  file.format =
      format != nullptr && *format == Json::String("json") ? Format::kJson : Format::kToml;
  ASSIGN_OR_RETURN(file.written_text, json.StringAt("wrote"));
  const Json* undo = json.Find("undo");
  ASSIGN_OR_RETURN(file.undo, EditsFromJson(undo != nullptr ? *undo : Json()));
  ASSIGN_OR_RETURN(const bool existed, json.BoolAt("existed"));
  if (!existed) return file;
  const std::string backup = BackupPath(config, file.path);
  ASSIGN_OR_RETURN(file.original, host.Read(backup));
  if (!file.original) return Error(Code::kDataLoss, "the backup {} is missing", backup);
  ASSIGN_OR_RETURN(const int64_t mode, json.IntAt("mode"));
  ASSIGN_OR_RETURN(const int64_t uid, json.IntAt("uid"));
  ASSIGN_OR_RETURN(const int64_t gid, json.IntAt("gid"));
  ASSIGN_OR_RETURN(file.original->selinux, json.StringAt("selinux"));
  file.original->mode = static_cast<mode_t>(mode);
  file.original->uid = static_cast<uid_t>(uid);
  file.original->gid = static_cast<gid_t>(gid);
  return file;
}

Result<Record> RecordFromText(const HostRoot& host, const std::string& config,
                              const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const int64_t version, json.IntAt("version"));
  if (version != kVersion) {
    return Error(Code::kUnimplemented, "unknown record version {}", version);
  }
  Record record;
  ASSIGN_OR_RETURN(record.pending, json.BoolAt("pending"));
  if (const Json* engine = json.Find("engineVersion"); engine != nullptr && engine->is_string()) {
    record.engine_version = ParseVersion(engine->string_value());
  }
  // Records of earlier versions do not have this member.
  if (json.Find("servedCri") != nullptr) {
    ASSIGN_OR_RETURN(record.served_cri, json.BoolAt("servedCri"));
  }
  if (const Json* dirs = json.Find("folders"); dirs != nullptr && dirs->is_array()) {
    for (const Json& dir : dirs->items()) {
      if (dir.is_string()) record.dirs.push_back(dir.string_value());
    }
  }
  const Json* files = json.Find("files");
  if (files == nullptr || !files->is_array())
    return Error(Code::kDataLoss, "the record names no files");
  for (const Json& item : files->items()) {
    ASSIGN_OR_RETURN(RecordedFile file, FileFromJson(host, config, item));
    record.files.push_back(std::move(file));
  }
  return record;
}

}  // namespace

const RecordedFile* Record::Find(const std::string& path) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const RecordedFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

std::string RecordPath(const std::string& config) { return config + ".tessera-record"; }

std::string BackupPath(const std::string& config, const std::string& file) {
  // In the main file's directory, because CRI-O reads every file of its drop-in directory.
  return JoinPath(DirName(config), BaseName(file) + ".tessera-backup");
}

Result<std::optional<Record>> LoadRecord(const HostRoot& host, const std::string& config) {
  const std::string path = RecordPath(config);
  ASSIGN_OR_RETURN(const std::optional<FileState> state, host.Read(path));
  if (!state) return std::optional<Record>();
  auto record = RecordFromText(host, config, state->text);
  if (!record.ok()) {
    return Error(Code::kDataLoss, "{}: {}: restore the files by hand, and remove the record", path,
                 record.status().message());
  }
  return std::optional<Record>(*std::move(record));
}

Status SaveRecord(const HostRoot& host, const std::string& config, const Record& record) {
  Json files = Json::MakeArray();
  for (const RecordedFile& file : record.files) {
    if (file.original) {
      RETURN_IF_ERROR(host.Write(BackupPath(config, file.path), *file.original));
    }
    files.Append(FileToJson(file));
  }
  Json json = Json::MakeObject();
  json.Set("version", Json::Int(kVersion));
  json.Set("pending", Json::Bool(record.pending));
  if (record.engine_version) {
    json.Set("engineVersion", Json::String(fmt::format("{}.{}", record.engine_version->major,
                                                       record.engine_version->minor)));
  }
  json.Set("servedCri", Json::Bool(record.served_cri));
  json.Set("folders", Json::Strings(record.dirs));
  json.Set("files", std::move(files));
  FileState state;
  state.text = json.Pretty() + "\n";
  state.mode = 0600;  // contains text of files that may be private
  return host.Write(RecordPath(config), state);
}

Status RemoveBackups(const HostRoot& host, const std::string& config, const Record& old_record,
                     const Record& new_record) {
  for (const RecordedFile& file : old_record.files) {
    if (!file.original || new_record.Find(file.path) != nullptr) continue;
    RETURN_IF_ERROR(host.Remove(BackupPath(config, file.path)));
  }
  return Status::Ok();
}

Status RemoveRecord(const HostRoot& host, const std::string& config, const Record& record) {
  // Removes the record first: a record without its backups would count as damaged.
  RETURN_IF_ERROR(host.Remove(RecordPath(config)));
  return RemoveBackups(host, config, record, {});
}

}  // namespace tessera::engine
