// SPDX-License-Identifier: Apache-2.0
// Makes the dynamic linker of a container find the driver's libraries, which are in a directory
// unknown to images. Runs as root in a container's root file system, so it reads and writes through
// RootedDir only. glibc finds the libraries through /etc/ld.so.cache. That file must stay
// replaceable, because package managers run ldconfig, which replaces it by rename. Threads: one.
//
//   writable root, glibc image   writes /etc/ld.so.cache and /etc/ld.so.conf.d/00-tessera.conf to
//                                the container's layer; ldconfig writes the same entries again
//   read-only root, with cache   mounts the merged cache over the image's; ldconfig cannot write
//                                there
//   else (musl, no cache)        LD_LIBRARY_PATH
//
// An image that is committed from a container keeps these two files. Without the driver's directory
// they have no effect.
//
// Some programs do not ask the linker, but search directories. For these, the image's own library
// directory gets a link to each library, also in a read-only root: the container's layer is
// writable before the start. Without the driver's directory the links lead nowhere, and ldconfig
// removes those with ".so." in their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/oci/ld_cache.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

struct LinkerSetup {
  enum class Method { kWrite, kMount, kEnvironment };
  Method method = Method::kEnvironment;
  LdCache cache;  // of the image, without entries of an earlier start; empty for kEnvironment
  std::string fallback_reason;  // the reason for kEnvironment, as text for administrators
};

// Reads the root file system of a container; changes nothing. An image without a usable cache, or
// an image whose ldconfig would not read Tessera's file, is not an error and gives kEnvironment.
LinkerSetup FindLinkerSetup(const RootedDir& root, bool read_only);

// The directory in which distributions have the driver's libraries, relative to the root and
// without links: usr/lib/x86_64-linux-gnu, or usr/lib64. Empty if the image has neither, such as a
// musl image, or only a link that leads to no library directory of the image.
std::string FindLibraryDir(const RootedDir& root);

// Makes links from `image_dir`, which is FindLibraryDir's, to the libraries `names` in
// `driver_dir`. Replaces only links of an earlier start. Errors: see RootedDir::MakeLinks.
Status LinkLibraries(const RootedDir& root, const std::string& image_dir,
                     std::string_view driver_dir, const std::vector<std::string>& names);

// Writes `cache`, and a file that names `driver_dir` for ldconfig, to the root file system.
// Follows no link in it. Does not rewrite an unchanged cache.
Status WriteLinkerFiles(const RootedDir& root, std::string_view driver_dir, std::string_view cache);

}  // namespace tessera::oci
