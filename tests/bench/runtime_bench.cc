// SPDX-License-Identifier: Apache-2.0
// What tessera-runtime costs: the same verbs on bare runc and through it, in alternating pairs, so
// that both see the same machine.
//
//   runtime_bench [--runc PATH] [--ours PATH] [--pairs N]      ($TMPDIR, default /dev/shm)
//
// Needs root, and a low-level runtime. Prints median and 90th percentile in milliseconds, the median of
// the differences of the pairs, and the largest resident set of our process before it becomes runc.
// Two lines say where a create's time goes: "our part" runs a low-level runtime that does nothing,
// "runc's part" runs bare runc on the bundle that we edited.
// This program is also the container's init (--pause), what exec runs there (--true), and that
// low-level runtime (--root).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera {
namespace {

using Steady = std::chrono::steady_clock;

constexpr const char* kConfigVariable = "TESSERA_RUNTIME_CONFIG";

// The libraries and programs of a real driver for "compute,utility".
const std::vector<std::string> kLibraries = {
    "cuda",        "cudadebugger",    "nvidia-opencl",   "nvidia-gpucomp",
    "nvidia-ml",   "nvidia-cfg",      "nvidia-nscq",     "nvidia-ptxjitcompiler",
    "nvidia-nvvm", "nvidia-allocator", "nvidia-pkcs11-openssl3", "nvidia-tileiras"};
const std::vector<std::string> kBinaries = {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced",
                                            "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"};

struct Setup {
  std::string runc = "/usr/sbin/runc";
  std::string ours = "build/release/bin/tessera-runtime";
  int pairs = 100;
  std::string folder;
  std::string state;
};

struct Sample {
  double ms = 0;
  long rss_kib = 0;
  int exit_code = 0;
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "runtime_bench: %s\n", why.c_str());
  std::exit(1);
}

void Must(const Status& status) {
  if (!status.ok()) Die(status.message());
}

Sample Run(const std::vector<std::string>& argv) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::fflush(stdout);
  const auto start = Steady::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // A file, not a pipe: the container keeps it open.
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
    if (std::freopen("/dev/null", "r", stdin) == nullptr) ::_exit(126);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  while (::wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  const std::chrono::duration<double, std::milli> took = Steady::now() - start;
  return {took.count(), usage.ru_maxrss, WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

double Percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

std::string ConfigText(bool gpu) {
  const std::string env = gpu ? R"(,"NVIDIA_VISIBLE_DEVICES=0")" : "";
  return R"({"ociVersion":"1.0.2","process":{"user":{"uid":0,"gid":0},"args":["/init","--pause"],)"
         R"("env":["PATH=/bin")" + env + R"(],"cwd":"/"},"root":{"path":"rootfs","readonly":true},)"
         R"("mounts":[{"destination":"/proc","type":"proc","source":"proc"},)"
         R"({"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755"]}],)"
         R"("linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]},)"
         R"("namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";
}

void MakeBundle(const std::string& bundle) {
  for (const char* dir : {"proc", "dev", "etc"}) Must(MakeDirs(bundle + "/rootfs/" + dir));
  const Result<std::string> self = ReadFile("/proc/self/exe");
  Must(self.status());
  Must(WriteFileAtomically(bundle + "/rootfs/init", *self, 0755));
}

class Bench {
 public:
  explicit Bench(Setup setup) : setup_(std::move(setup)) {}

  void RunAll() {
    std::printf("%-22s %10s %10s %10s %10s %12s\n", "verb", "runc p50", "ours p50", "runc p90",
                "ours p90", "added p50");
    Compare("create, GPU", [this](bool ours) { return Create(ours, true); });
    Compare("  our part", [this](bool ours) { return CreateWithoutRunc(ours); });
    Compare("  runc's part", [this](bool ours) { return CreateEdited(ours); });
    Compare("create, no GPU", [this](bool ours) { return Create(ours, false); });
    const std::string id = Start();
    Compare("state", [&](bool ours) { return Run(Command(ours, {"state", id})); });
    Compare("exec", [&](bool ours) { return Run(Command(ours, {"exec", id, "/init", "--true"})); });
    Compare("kill (signal 0)", [&](bool ours) { return Run(Command(ours, {"kill", id, "0"})); });
    Run(Command(false, {"delete", "-f", id}));
    const Sample explain =
        Run({setup_.ours, "explain", "--bundle", setup_.folder + "/bundle"});
    std::printf("resident set of our process, GPU decided: %ld KiB\n", explain.rss_kib);
  }

 private:
  std::vector<std::string> Command(bool ours, std::vector<std::string> rest) const {
    std::vector<std::string> argv = {ours ? setup_.ours : setup_.runc, "--root", setup_.state};
    argv.insert(argv.end(), rest.begin(), rest.end());
    return argv;
  }

  // As an engine makes it: a container's bundle is new.
  std::string FreshBundle(bool gpu) const {
    std::string bundle = setup_.folder + "/bundle";
    std::filesystem::remove_all(bundle + "/tessera");
    Must(WriteFileAtomically(bundle + "/config.json", ConfigText(gpu), 0644));
    return bundle;
  }

  Sample Create(bool ours, bool gpu) {
    const std::string bundle = FreshBundle(gpu);
    const std::string id = NextId();
    const Sample sample = Run(Command(ours, {"create", "--bundle", bundle, id}));
    Run(Command(false, {"delete", "-f", id}));
    return sample;
  }

  // Neither side makes a container.
  Sample CreateWithoutRunc(bool ours) {
    const std::string bundle = FreshBundle(true);
    ::setenv(kConfigVariable, (setup_.folder + "/nothing.toml").c_str(), 1);
    const std::string program = ours ? setup_.ours : setup_.folder + "/bundle/rootfs/init";
    const Sample sample =
        Run({program, "--root", setup_.state, "create", "--bundle", bundle, NextId()});
    ::setenv(kConfigVariable, (setup_.folder + "/runtime.toml").c_str(), 1);
    return sample;
  }

  // Bare runc on both sides; `edited` by us beforehand.
  Sample CreateEdited(bool edited) {
    CreateWithoutRunc(true);
    const std::string bundle = setup_.folder + "/bundle";
    if (!edited) Must(WriteFileAtomically(bundle + "/config.json", ConfigText(true), 0644));
    const std::string id = NextId();
    const Sample sample = Run(Command(false, {"create", "--bundle", bundle, id}));
    Run(Command(false, {"delete", "-f", id}));
    return sample;
  }

  std::string Start() {
    const std::string bundle = FreshBundle(true);
    const std::string id = NextId();
    if (Run(Command(true, {"create", "--bundle", bundle, id})).exit_code != 0) Die("create failed");
    if (Run(Command(true, {"start", id})).exit_code != 0) Die("start failed");
    return id;
  }

  std::string NextId() { return fmt::format("tessera-bench-{}-{}", ::getpid(), ++count_); }

  void Compare(const char* name, const std::function<Sample(bool ours)>& run) {
    std::vector<double> theirs, ours, added;
    for (int i = 0; i < setup_.pairs; ++i) {
      const bool ours_first = i % 2 == 1;
      const Sample first = run(ours_first);
      const Sample second = run(!ours_first);
      if (first.exit_code != 0 || second.exit_code != 0) Die(std::string(name) + " failed");
      ours.push_back((ours_first ? first : second).ms);
      theirs.push_back((ours_first ? second : first).ms);
      added.push_back(ours.back() - theirs.back());
    }
    std::printf("%-22s %10.2f %10.2f %10.2f %10.2f %+12.2f\n", name, Percentile(theirs, 0.5),
                Percentile(ours, 0.5), Percentile(theirs, 0.9), Percentile(ours, 0.9),
                Percentile(added, 0.5));
    std::fflush(stdout);
  }

  Setup setup_;
  int count_ = 0;
};

Setup ReadArguments(int argc, char** argv) {
  Setup setup;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--runc") setup.runc = argv[i + 1];
    if (name == "--ours") setup.ours = argv[i + 1];
    if (name == "--pairs") setup.pairs = static_cast<int>(ParseInt(argv[i + 1]).value_or(100));
  }
  return setup;
}

void WriteOptions(const Setup& setup, const std::string& name, const std::string& runtime) {
  const std::string options = fmt::format(
      "driver-root = \"{0}/driver\"\ndev-root = \"{0}/driver\"\nruntimes = [\"{1}\"]\n",
      setup.folder, runtime);
  Must(WriteFileAtomically(setup.folder + "/" + name, options, 0644));
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--true") == 0) return 0;
  if (argc > 1 && std::strcmp(argv[1], "--root") == 0) return 0;
  if (argc > 1 && std::strcmp(argv[1], "--pause") == 0) return ::pause();
  Setup setup = ReadArguments(argc, argv);
  // Engines keep bundles in /run, a tmpfs.
  if (const char* shm = "/dev/shm"; ::access(shm, W_OK) == 0) ::setenv("TMPDIR", shm, 0);
  const TempDir folder("runtime-bench");
  setup.folder = folder.path();
  setup.state = folder.path() + "/state";
  oci::FakeDriverOptions driver = oci::TwoGpus();
  driver.libraries = kLibraries;
  driver.binaries = kBinaries;
  Must(oci::MakeFakeDriver(setup.folder + "/driver", driver));
  Must(oci::MakeFakeNodes(setup.folder + "/driver", driver));
  MakeBundle(setup.folder + "/bundle");
  WriteOptions(setup, "runtime.toml", setup.runc);
  WriteOptions(setup, "nothing.toml", setup.folder + "/bundle/rootfs/init");
  ::setenv(kConfigVariable, (setup.folder + "/runtime.toml").c_str(), 1);
  Bench(setup).RunAll();
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
