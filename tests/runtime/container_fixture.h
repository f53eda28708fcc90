// SPDX-License-Identifier: Apache-2.0
// A bundle with a small image made of this machine's own libc, a driver without a GPU behind it,
// and the real runc or crun to run it with. The end of the test removes all of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "src/formats/json.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera {

class ContainerFixture : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string path(const std::string& name) const { return JoinPath(folder_.path(), name); }
  std::string bundle() const { return path("bundle"); }
  std::string rootfs() const { return path("bundle/rootfs"); }
  std::string log() const { return path("log.json"); }

  // The configuration of the next Run. Tests change it in place.
  Json& config() { return config_; }
  void SetArgs(const std::vector<std::string>& args);
  void AddEnv(const std::string& entry);
  void AddAnnotation(const std::string& name, const std::string& value);
  void AddMount(const std::string& destination, const std::string& type, const std::string& source,
                const std::vector<std::string>& options);
  void RemoveMount(const std::string& destination);
  void AddLinkerCache();

  // Writes the configuration and runs the container to its end.
  SubprocessResult Run();
  // Runs the container with the configuration that is in the bundle already.
  SubprocessResult RunAsItIs();
  SubprocessResult RunTessera(const std::vector<std::string>& arguments);
  // Runs a command of tessera-runtime itself, such as "explain", without options before it.
  SubprocessResult RunOwn(const std::vector<std::string>& arguments);
  void WriteRuntimeToml(const std::string& more);
  // Sets the folder in which shared trees of driver files are made. If it is empty, none are made.
  void UseTreeDir(const std::string& dir);

  // Returns every path below `dir`, with its type, size and link target.
  static std::map<std::string, std::string> Tree(const std::string& dir);

 private:
  void MakeImage();

  TempDir folder_{"tessera-runtime-test"};
  Json config_;
  std::string tree_dir_;
  int count_ = 0;
};

}  // namespace tessera
