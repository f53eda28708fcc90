// SPDX-License-Identifier: Apache-2.0
// For tests: a directory with /proc as NVIDIA's kernel module writes it, and with /dev.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "src/base/file.h"

namespace tessera::agent {

class DeviceNodeFixture : public ::testing::Test {
 protected:
  // `information` is the text of the GPU's file, such as "Device Minor: 0\n".
  void AddGpu(const std::string& address, const std::string& information) const {
    ASSERT_TRUE(MakeDirs(GpuDir(address)).ok());
    ASSERT_TRUE(WriteFileAtomically(GpuDir(address) + "/information", information, 0600).ok());
  }
  void RemoveGpu(const std::string& address) const { std::filesystem::remove_all(GpuDir(address)); }
  // The text of /proc/devices.
  void SetDevices(const std::string& text) const {
    ASSERT_TRUE(MakeDirs(dir_.path() + "/proc").ok());
    ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/proc/devices", text, 0600).ok());
  }
  std::string Dev(const std::string& name) const { return dir_.path() + "/dev/" + name; }
  // mknod needs CAP_MKNOD, which root may lack in a container or user namespace.
  bool MayMakeNodes() const {
    const std::string probe = dir_.path() + "/probe";
    if (::mknod(probe.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) return false;
    ::unlink(probe.c_str());
    return true;
  }

  TempDir dir_;

 private:
  std::string GpuDir(const std::string& address) const {
    return dir_.path() + "/proc/driver/nvidia/gpus/" + address;
  }
};

}  // namespace tessera::agent
