// SPDX-License-Identifier: Apache-2.0
#include "src/oci/stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "src/base/file.h"

namespace tessera::oci {

std::string Stage::PathIn(const std::string& bundle) { return JoinPath(bundle, "tessera"); }

Result<Stage> Stage::Make(const std::string& bundle, const std::string& label) {
  Stage stage(PathIn(bundle), label);
  if (::mkdir(stage.path_.c_str(), 0755) != 0) {
    if (errno != EEXIST) return Status::FromErrno(stage.path_, errno);
    std::error_code error;
    std::filesystem::remove_all(stage.path_, error);  // removes links, does not follow them
    if (error) return Status::FromErrno(stage.path_, error.value());
    if (::mkdir(stage.path_.c_str(), 0755) != 0) return Status::FromErrno(stage.path_, errno);
  }
  return stage;
}

Result<std::string> Stage::AddTree(const Tree& tree) {
  std::string path = JoinPath(path_, "tree");
  if (::mkdir(path.c_str(), 0755) != 0) return Status::FromErrno(path, errno);
  RETURN_IF_ERROR(tree.MakeIn(path));
  RETURN_IF_ERROR(SetLabel(path));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    RETURN_IF_ERROR(SetLabel(entry.path()));
  }
  return path;
}

Result<std::string> Stage::AddFile(const std::string& name, std::string_view data) {
  std::string path = JoinPath(path_, name);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  RETURN_IF_ERROR(WriteFd(fd.get(), data).Annotate(path));
  RETURN_IF_ERROR(SetLabel(path));
  return path;
}

// Low-level runtimes label their own mounts, but not bind mounts.
Status Stage::SetLabel(const std::string& path) const {
  if (label_.empty()) return Status::Ok();
  // The value includes its final zero, as libselinux stores a label.
  if (::lsetxattr(path.c_str(), "security.selinux", label_.c_str(), label_.size() + 1, 0) == 0) {
    return Status::Ok();
  }
  return Status::FromErrno("label " + path, errno);
}

}  // namespace tessera::oci
