// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/unrepaired_xids.h"

#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/strings.h"

namespace tessera::gpu {

// File format: "boot <id>", then a line "<uuid> <xid>" for each GPU.
UnrepairedXidFile::UnrepairedXidFile(std::string path, std::string boot_id)
    : path_(std::move(path)), boot_id_(std::move(boot_id)) {
  if (path_.empty()) return;
  const Result<std::string> text = ReadFile(path_, 64 << 10);
  if (!text.ok()) return;
  const std::vector<std::string_view> lines = Split(*text, '\n');
  if (lines.empty() || lines[0] != "boot " + boot_id_) return;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = Split(lines[i], ' ');
    if (words.size() != 2) continue;
    const Result<int64_t> code = ParseInt(words[1]);
    if (code.ok() && *code > 0) xids_[std::string(words[0])] = static_cast<uint64_t>(*code);
  }
}

void UnrepairedXidFile::Save(const UnrepairedXids& xids) {
  if (xids == xids_) return;
  xids_ = xids;
  if (path_.empty()) return;
  std::string text = "boot " + boot_id_ + "\n";
  for (const auto& [uuid, code] : xids_) text += fmt::format("{} {}\n", uuid, code);
  const Status status = WriteFileAtomically(path_, text, 0600);
  if (status.ok()) return;
  Log(Severity::kError,
      "cannot remember XIDs that need a repair: a restart of the agent forgets them",
      {{"file", path_}, {"error", status.ToString()}});
}

std::string BootId() {
  const Result<std::string> text = ReadFile("/proc/sys/kernel/random/boot_id", 256);
  return text.ok() ? std::string(Trim(*text)) : "";
}

}  // namespace tessera::gpu
