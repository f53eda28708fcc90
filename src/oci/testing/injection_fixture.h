// SPDX-License-Identifier: Apache-2.0
// For tests of injection: the bundle of a container, and a fake driver to inject into it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/oci/injection.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera::oci {

class InjectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeFakeDriver(path("driver"), TwoGpus()).ok());
    std::filesystem::create_directories(path("bundle/rootfs/etc/ld.so.conf.d"));
    injection_.driver = FindDriver(path("driver"), kDefaultCapabilities).value();
  }

  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  std::string rootfs() const { return path("bundle/rootfs"); }

  void AddImageCache(const std::string& conf = "include /etc/ld.so.conf.d/*.conf\n") {
    LdCache cache;
    cache.entries = {
        {.name = "libc.so.6", .path = "/lib/libc.so.6", .flags = NativeLdCacheFlags()},
        {.name = "libcuda.so.1", .path = "/opt/libcuda.so.1", .flags = NativeLdCacheFlags()}};
    Write("etc/ld.so.cache", WriteLdCache(cache));
    Write("etc/ld.so.conf", conf);
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(rootfs(), name), text, 0644).ok());
  }

  // `mounts`: destination, type and source of each mount.
  using Mounts = std::vector<std::array<std::string, 3>>;
  ConfigDocument Document(const Mounts& mounts, bool read_only = false) {
    Json json =
        ParseJson(R"({"process":{"env":["PATH=/bin"]},"root":{"path":"rootfs"},"linux":{}})")
            .value();
    json.Find("root")->Set("readonly", Json::Bool(read_only));
    Json list = Json::MakeArray();
    for (const auto& [destination, type, source] : mounts) {
      Json mount = Json::MakeObject();
      mount.Set("destination", Json::String(destination));
      mount.Set("type", Json::String(type));
      mount.Set("source", Json::String(source));
      list.Append(std::move(mount));
    }
    json.Set("mounts", std::move(list));
    return ConfigDocument::Parse(json.Serialize(), path("bundle")).value();
  }
  // The engine creates /dev for this container only.
  static Mounts PrivateDev() { return {{"/dev", "tmpfs", "tmpfs"}}; }

  Result<std::string> DriverDirFor(const Mounts& mounts, const std::string& tree_dir = "") {
    ASSIGN_OR_RETURN(const InjectionTarget target, FindInjectionTarget(Document(mounts), tree_dir));
    return target.driver_dir;
  }

  // The document with the mounts that a start would add.
  ConfigDocument Injected(ConfigDocument document) {
    const Result<InjectionTarget> target = FindInjectionTarget(document, "");
    EXPECT_TRUE(target.ok()) << target.status().message();
    const auto summary = Inject(injection_, *target, &document);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return document;
  }
  static std::vector<std::string> Destinations(const ConfigDocument& document) {
    std::vector<std::string> all;
    for (const Mount& mount : document.Mounts()) all.push_back(mount.destination);
    return all;
  }

  TempDir dir_;
  Injection injection_;
};

}  // namespace tessera::oci
