// SPDX-License-Identifier: Apache-2.0
// Provides the driver's files as one directory of the host to all containers with the same files,
// so that each container needs one mount instead of one for each file: runc takes a quarter of a
// millisecond for each.
//
//   <dir>/lock
//   <dir>/trees/                 a tmpfs that propagates no mounts to other namespaces
//   <dir>/trees/<key>/           a tmpfs: links, and bind mounts of the driver's files; read only
//
// A container gets the tree by a recursive bind mount and keeps its own copies of the mounts, so
// that later changes of the tree on the host do not affect it. The trees are a cache: they may be
// unmounted at any time ("umount --recursive --lazy <dir>/trees"), disappear with a reboot, and are
// recreated on demand. Nothing is copied, and nothing is written to the driver's directories.
//
// A container's own files are in a Stage. Threads and processes: any, concurrently; creators wait
// for a lock. Cost: two stat(2) for each file; the first time also three mount(2).
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/oci/tree.h"

namespace tessera::oci {

// Returns the path of a tree with the entries of `tree`, and creates it if necessary. Its key
// depends on names and the files' inodes, so that another driver has another tree. `family` names
// trees that replace each other, for example the trees of one driver root: creating a tree unmounts
// the trees of its family that have other files under the same names. A tree that is incomplete, or
// from which a file was unmounted, is created again. After an error no incomplete tree remains.
//
// `label` is the SELinux label of the tree's directories and links, which confined containers need
// to search them; empty without SELinux. The driver's files keep their labels, which containers may
// read.
//
// PERMISSION_DENIED: mounts need root. RESOURCE_EXHAUSTED: there are already kMaxSharedTrees, which
// does not happen in normal use. UNAVAILABLE: another process holds the lock. NOT_FOUND, ABORTED:
// the driver is being replaced.
Result<std::string> ShareTree(const Tree& tree, const std::string& family, const std::string& dir,
                              const std::string& label = "");

// A container's label without the categories that separate containers:
// "…:container_file_t:s0:c1,c2" -> "…:container_file_t:s0", which all containers may read. Empty if
// `mount_label` is not a label.
std::string LabelWithoutCategories(std::string_view mount_label);

// Unmounts and removes all trees of `dir`, and returns their number; 0 also without such a
// directory. Running containers keep their copies; a container that is just starting may fail. The
// lock file stays. PERMISSION_DENIED, UNAVAILABLE: as above.
Result<size_t> DropSharedTrees(const std::string& dir);

// Each set of capabilities that an image requests may need a tree.
inline constexpr size_t kMaxSharedTrees = 16;

}  // namespace tessera::oci
