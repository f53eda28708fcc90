// SPDX-License-Identifier: Apache-2.0
// Measures the cost of tessera-runtime: the same verbs on bare runc and through tessera-runtime, in
// alternating pairs, so that other load on the machine affects both alike.
//
//   runtime_bench [--runc PATH] [--ours PATH] [--pairs N]      ($TMPDIR, default /dev/shm)
//
// The default of --ours is the tessera-runtime in the directory of this program.
// Needs root, and a low-level runtime. Prints median and 90th percentile in milliseconds, the
// medians of the differences of the pairs, in wall time and in CPU time, and the largest resident
// set of tessera-runtime before it becomes runc. "runc's part" runs bare runc on a bundle that
// tessera-runtime has edited. "Granted" containers are those of Kubernetes: a stand-in for the
// agent grants a whole GPU, or a share with the limiter. "share over GPU" compares these two, both
// through tessera-runtime.
//
// A second table measures tessera-runtime alone, in front of a low-level runtime that does nothing:
// the wall and CPU time that it adds, and, by stepping through it, its instructions and system
// calls until it executes that runtime. "null" is a static program that only executes another
// program. This program also serves as the container's init (--pause), as the program of exec
// (--true), as the low-level runtime that does nothing (--root), and as the null program
// (--become).
#include <sched.h>
#include <sys/mount.h>
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
#include <optional>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/limiter/limits_file.h"
#include "src/oci/testing/fake_driver.h"
#include "tests/bench/interrupt.h"
#include "tests/bench/step_counter.h"
#include "tests/runtime/one_answer.h"

namespace tessera {
namespace {

using Steady = std::chrono::steady_clock;

constexpr const char* kConfigVariable = "TESSERA_RUNTIME_CONFIG";

// The libraries and programs of a real driver for "compute,utility".
const std::vector<std::string> kLibraries = {"cuda",
                                             "cudadebugger",
                                             "nvidia-opencl",
                                             "nvidia-gpucomp",
                                             "nvidia-ml",
                                             "nvidia-cfg",
                                             "nvidia-nscq",
                                             "nvidia-ptxjitcompiler",
                                             "nvidia-nvvm",
                                             "nvidia-allocator",
                                             "nvidia-pkcs11-openssl3",
                                             "nvidia-tileiras"};
const std::vector<std::string> kBinaries = {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced",
                                            "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"};

struct Setup {
  std::string runc = "/usr/sbin/runc";
  std::string ours;
  int pairs = 100;
  std::string folder;
  std::string state;

  // Configurations of tessera-runtime: without an agent, and with the agent that grants a whole GPU
  // or a share.
  std::string config() const { return folder + "/runtime.toml"; }
  std::string gpu_config() const { return folder + "/gpu.toml"; }
  std::string share_config() const { return folder + "/share.toml"; }
  std::string gpu_socket() const { return folder + "/gpu.sock"; }
  std::string share_socket() const { return folder + "/share.sock"; }
  std::string limits_dir() const { return folder + "/limits"; }
};

struct Sample {
  double ms = 0;
  double cpu_us = 0;  // CPU time of the process and of the children that it waited for
  long faults = 0;
  long rss_kib = 0;
  int exit_code = 0;
};

// An exception, so that destructors remove the folder, the mounts and the container.
struct Failure {
  std::string why;
  int exit_code = 1;
};

[[noreturn]] void Die(const std::string& why) { throw Failure{why}; }

void DieIfInterrupted() {
  if (testing::Interrupted()) throw Failure{"interrupted", testing::kInterruptedExit};
}

void Must(const Status& status) {
  if (!status.ok()) Die(status.message());
}

class AtExit {
 public:
  explicit AtExit(std::function<void()> act) : act_(std::move(act)) {}
  ~AtExit() { act_(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  const std::function<void()> act_;
};

double Microseconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
}

Sample Run(const std::vector<std::string>& argv) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::fflush(stdout);
  const auto start = Steady::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Ctrl-C must not reach the runtime, which would leave an incomplete container.
    ::setpgid(0, 0);
    // Not a pipe, because the container keeps its output open.
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
  return {.ms = took.count(),
          .cpu_us = Microseconds(usage.ru_utime) + Microseconds(usage.ru_stime),
          .faults = usage.ru_minflt,
          .rss_kib = usage.ru_maxrss,
          .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

double Percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

// What the container requests.
enum class Wants {
  kNothing,
  kByVariable,  // a GPU, by NVIDIA_VISIBLE_DEVICES, as outside Kubernetes
  kGrant,       // the GPU or share that the agent has granted
};

std::string ConfigText(Wants wants) {
  std::string env, annotations;
  if (wants == Wants::kByVariable) env = R"(,"NVIDIA_VISIBLE_DEVICES=0")";
  if (wants == Wants::kGrant) {
    env = R"(,"TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-2")";
    annotations = R"("annotations":{"io.kubernetes.cri.container-type":"container",)"
                  R"("io.kubernetes.cri.sandbox-uid":"0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11",)"
                  R"("io.kubernetes.cri.sandbox-name":"trainer",)"
                  R"("io.kubernetes.cri.sandbox-namespace":"team",)"
                  R"("io.kubernetes.cri.container-name":"main"},)";
  }
  return R"({"ociVersion":"1.0.2",)" + annotations +
         R"("process":{"user":{"uid":0,"gid":0},"args":["/init","--pause"],)"
         R"("env":["PATH=/bin")" +
         env +
         R"(],"cwd":"/"},"root":{"path":"rootfs","readonly":true},)"
         R"("mounts":[{"destination":"/proc","type":"proc","source":"proc"},)"
         R"({"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid",)"
         R"("mode=755"]}],)"
         R"("linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]},)"
         R"("namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";
}

void MakeBundle(const std::string& bundle) {
  for (const char* dir : {"proc", "dev", "etc"}) Must(MakeDirs(bundle + "/rootfs/" + dir));
  const Result<std::string> self = ReadFile("/proc/self/exe");
  Must(self.status());
  Must(WriteFileAtomically(bundle + "/rootfs/init", *self, 0755));
}

// A folder in which `program` is runc.
void MakePath(const Setup& setup, const char* name, const std::string& program) {
  const std::string folder = setup.folder + "/path/" + name;
  Must(MakeDirs(folder));
  std::filesystem::create_symlink(program, folder + "/runc");
}

// tessera-runtime finds its low-level runtime in PATH, as on a node whose configuration names no
// runtime.
void UsePath(const Setup& setup, const char* name) {
  ::setenv("PATH", (setup.folder + "/path/" + name + ":/usr/sbin:/usr/bin:/sbin:/bin").c_str(), 1);
}

void UseConfig(const std::string& path) { ::setenv(kConfigVariable, path.c_str(), 1); }

void WriteConfig(const Setup& setup, const std::string& path, const std::string& socket) {
  const std::string text = fmt::format(
      "driver-root = \"{0}/driver\"\ndev-root = \"{0}/driver\"\ndriver-tree-dir = \"{0}\"\n"
      "grant-socket = \"{1}\"\n",
      setup.folder, socket);
  Must(WriteFileAtomically(path, text, 0644));
}

class Bench {
 public:
  explicit Bench(Setup setup) : setup_(std::move(setup)) {}

  void RunAll() {
    std::printf("%-22s %10s %10s %10s %10s %12s %12s\n", "verb", "runc p50", "ours p50", "runc p90",
                "ours p90", "added p50", "added CPU");
    Compare("create, GPU", [this](bool ours) { return Create(ours, Wants::kByVariable); });
    Compare("  runc's part", [this](bool ours) { return CreateEdited(ours); });
    Compare("create, no GPU", [this](bool ours) { return Create(ours, Wants::kNothing); });
    {
      const OneAnswer gpu(setup_.gpu_socket(), GrantOfSecondGpu(setup_.folder + "/driver"));
      const OneAnswer share(setup_.share_socket(), GrantOfShare());
      Compare("create, granted GPU", [this](bool ours) { return CreateGranted(ours, false); });
      Compare("create, granted share", [this](bool ours) { return CreateGranted(ours, true); });
      Compare("  share over GPU", [this](bool share) { return CreateGranted(true, share); });
    }
    const std::string id = Start();
    const AtExit remove([&] { Run(Command(false, {"delete", "-f", id})); });
    Compare("state", [&](bool ours) { return Run(Command(ours, {"state", id})); });
    Compare("exec", [&](bool ours) { return Run(Command(ours, {"exec", id, "/init", "--true"})); });
    Compare("kill (signal 0)", [&](bool ours) { return Run(Command(ours, {"kill", id, "0"})); });
    MeasureOurPart();
    FreshBundle(Wants::kByVariable);
    const Sample explain = Run({setup_.ours, "explain", "--bundle", setup_.folder + "/bundle"});
    std::printf("resident set of our process, GPU decided: %ld KiB\n", explain.rss_kib);
  }

 private:
  void MeasureOurPart() {
    std::printf("\n%-22s %10s %10s %10s %12s %12s %8s\n", "our part", "ms p50", "cpu us p50",
                "faults", "instructions", "system calls", "cpuid");
    UsePath(setup_, "nothing");
    const std::string bundle = setup_.folder + "/bundle";
    const std::string init = bundle + "/rootfs/init";
    const std::vector<std::string> create = {"create", "--bundle", bundle, "x"};
    const auto nothing = [] {};
    OurPart("null", {init, "--become", init}, {"state", "x"}, nothing);
    OurPart("state", {setup_.ours}, {"state", "x"}, nothing);
    OurPart("kill", {setup_.ours}, {"kill", "x", "0"}, nothing);
    OurPart("exec", {setup_.ours}, {"exec", "--process", bundle + "/none", "x"}, nothing);
    OurPart("create, no GPU", {setup_.ours}, create, [this] { FreshBundle(Wants::kNothing); });
    OurPart("create, GPU", {setup_.ours}, create, [this] { FreshBundle(Wants::kByVariable); });
    const OneAnswer gpu(setup_.gpu_socket(), GrantOfSecondGpu(setup_.folder + "/driver"));
    const OneAnswer limited(setup_.share_socket(), GrantOfShare());
    for (const bool share : {false, true}) {
      UseConfig(share ? setup_.share_config() : setup_.gpu_config());
      OurPart(share ? "create, granted share" : "create, granted GPU", {setup_.ours}, create,
              [this] { FreshBundle(Wants::kGrant); });
    }
    UseConfig(setup_.config());
    UsePath(setup_, "real");
  }

  // Measures what `program` adds to a low-level runtime that does nothing.
  void OurPart(const char* name, std::vector<std::string> program,
               const std::vector<std::string>& verb, const std::function<void()>& prepare) {
    std::vector<std::string> alone = {setup_.folder + "/bundle/rootfs/init"};
    for (std::vector<std::string>* argv : {&program, &alone}) {
      argv->insert(argv->end(), {"--root", setup_.state});
      argv->insert(argv->end(), verb.begin(), verb.end());
    }
    std::vector<double> wall, cpu, faults;
    for (int i = 0; i < setup_.pairs; ++i) {
      DieIfInterrupted();
      prepare();
      const Sample ours = Run(program);
      const Sample theirs = Run(alone);
      if (ours.exit_code != 0 || theirs.exit_code != 0) Die(std::string(name) + " failed");
      wall.push_back(ours.ms - theirs.ms);
      cpu.push_back(ours.cpu_us - theirs.cpu_us);
      faults.push_back(static_cast<double>(ours.faults - theirs.faults));
    }
    prepare();
    const StepCount count = CountSteps(program).value_or(StepCount{});
    std::printf("%-22s %+10.2f %+10.0f %+10.0f %12ld %12ld %8ld\n", name, Percentile(wall, 0.5),
                Percentile(cpu, 0.5), Percentile(faults, 0.5), count.instructions,
                count.system_calls, count.cpuids);
    std::fflush(stdout);
  }

  std::vector<std::string> Command(bool ours, std::vector<std::string> rest) const {
    std::vector<std::string> argv = {ours ? setup_.ours : setup_.runc, "--root", setup_.state};
    argv.insert(argv.end(), rest.begin(), rest.end());
    return argv;
  }

  // Makes a new bundle for each container, as an engine does.
  std::string FreshBundle(Wants wants) const {
    std::string bundle = setup_.folder + "/bundle";
    std::filesystem::remove_all(bundle + "/tessera");
    Must(WriteFileAtomically(bundle + "/config.json", ConfigText(wants), 0644));
    return bundle;
  }

  grant::Grant GrantOfShare() const {
    grant::Grant grant = GrantOfSecondGpu(setup_.folder + "/driver");
    grant.devices[0].milli = 300;
    grant.devices[0].bytes = int64_t{4} << 30;
    grant.limits_dir = setup_.limits_dir();
    return grant;
  }

  Sample CreateGranted(bool ours, bool share) {
    UseConfig(share ? setup_.share_config() : setup_.gpu_config());
    const Sample sample = Create(ours, Wants::kGrant);
    UseConfig(setup_.config());
    return sample;
  }

  Sample Create(bool ours, Wants wants) {
    const std::string bundle = FreshBundle(wants);
    const std::string id = NextId();
    const Sample sample = Run(Command(ours, {"create", "--bundle", bundle, id}));
    Run(Command(false, {"delete", "-f", id}));
    return sample;
  }

  // Creates a container with bare runc. `edited`: tessera-runtime has edited the bundle before.
  Sample CreateEdited(bool edited) {
    const std::string bundle = FreshBundle(Wants::kByVariable);
    if (edited) {
      UsePath(setup_, "nothing");
      Run(Command(true, {"create", "--bundle", bundle, "x"}));
      UsePath(setup_, "real");
    }
    const std::string id = NextId();
    const Sample sample = Run(Command(false, {"create", "--bundle", bundle, id}));
    Run(Command(false, {"delete", "-f", id}));
    return sample;
  }

  std::string Start() {
    const std::string bundle = FreshBundle(Wants::kByVariable);
    const std::string id = NextId();
    if (Run(Command(true, {"create", "--bundle", bundle, id})).exit_code != 0) Die("create failed");
    if (Run(Command(true, {"start", id})).exit_code != 0) Die("start failed");
    return id;
  }

  std::string NextId() { return fmt::format("tessera-bench-{}-{}", ::getpid(), ++count_); }

  void Compare(const char* name, const std::function<Sample(bool ours)>& run) {
    std::vector<double> theirs, ours, added, added_cpu;
    for (int i = 0; i < setup_.pairs; ++i) {
      DieIfInterrupted();
      const bool ours_first = i % 2 == 1;
      const Sample first = run(ours_first);
      const Sample second = run(!ours_first);
      if (first.exit_code != 0 || second.exit_code != 0) Die(std::string(name) + " failed");
      ours.push_back((ours_first ? first : second).ms);
      theirs.push_back((ours_first ? second : first).ms);
      added.push_back(ours.back() - theirs.back());
      const double cpu_us =
          ours_first ? first.cpu_us - second.cpu_us : second.cpu_us - first.cpu_us;
      added_cpu.push_back(cpu_us / 1000);
    }
    std::printf("%-22s %10.2f %10.2f %10.2f %10.2f %+12.2f %+12.2f\n", name,
                Percentile(theirs, 0.5), Percentile(ours, 0.5), Percentile(theirs, 0.9),
                Percentile(ours, 0.9), Percentile(added, 0.5), Percentile(added_cpu, 0.5));
    std::fflush(stdout);
  }

  Setup setup_;
  int count_ = 0;
};

constexpr char kUsage[] =
    "usage: runtime_bench [--runc PATH] [--ours PATH] [--pairs N]\n"
    "Measures create, state, exec and kill on bare runc and through tessera-runtime, as root.\n"
    "  --runc PATH   the low-level runtime (/usr/sbin/runc)\n"
    "  --ours PATH   tessera-runtime (the one beside this program)\n"
    "  --pairs N     runs of each verb, at least 1 (100)\n";
constexpr int kExitUsage = 2;

std::string BesideThisProgram(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// Nullopt if the command line is invalid.
std::optional<Setup> ReadArguments(int argc, char** argv) {
  Setup setup;
  setup.ours = BesideThisProgram("tessera-runtime");
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return std::nullopt;
    if (name == "--runc") {
      setup.runc = argv[i + 1];
    } else if (name == "--ours") {
      setup.ours = argv[i + 1];
    } else if (name == "--pairs" && ParseInt(argv[i + 1]).value_or(0) >= 1) {
      setup.pairs = static_cast<int>(*ParseInt(argv[i + 1]));
    } else {
      return std::nullopt;
    }
  }
  return setup;
}

void CheckSetup(Setup* setup) {
  for (auto& [option, path] :
       {std::pair<const char*, std::string*>{"--runc", &setup->runc}, {"--ours", &setup->ours}}) {
    if (::access(path->c_str(), X_OK) != 0) {
      Die(fmt::format("there is no program {}: name one with {}", *path, option));
    }
    *path = std::filesystem::absolute(*path);  // becomes the target of a link
  }
}

void MakeNode(const Setup& setup) {
  oci::FakeDriverOptions driver = oci::TwoGpus();
  driver.libraries = kLibraries;
  driver.binaries = kBinaries;
  Must(oci::MakeFakeDriver(setup.folder + "/driver", driver));
  Must(oci::MakeFakeNodes(setup.folder + "/driver", driver));
  MakeBundle(setup.folder + "/bundle");
  WriteConfig(setup, setup.config(), setup.folder + "/none.sock");
  WriteConfig(setup, setup.gpu_config(), setup.gpu_socket());
  WriteConfig(setup, setup.share_config(), setup.share_socket());
  UseConfig(setup.config());
  Must(MakeDirs(setup.limits_dir()));
  limiter::LimitsFile limits;
  if (limits.Open((setup.limits_dir() + "/limits").c_str()) != 0) Die("cannot write limits");
  MakePath(setup, "real", setup.runc);
  MakePath(setup, "nothing", setup.folder + "/bundle/rootfs/init");
  UsePath(setup, "real");
}

void Measure(Setup setup) {
  CheckSetup(&setup);
  // Engines keep bundles in /run, a tmpfs.
  if (const char* shm = "/dev/shm"; ::access(shm, W_OK) == 0) ::setenv("TMPDIR", shm, 0);
  // A mount namespace of this program, so that the kernel removes the shared tree at its end.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    Die("no mounts: this needs root");
  }
  const TempDir folder("runtime-bench");
  const AtExit unmount([&] { ::umount2((folder.path() + "/trees").c_str(), MNT_DETACH); });
  setup.folder = folder.path();
  setup.state = folder.path() + "/state";
  MakeNode(setup);
  Bench(setup).RunAll();
}

int Main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--true") == 0) return 0;
  if (argc > 1 && std::strcmp(argv[1], "--root") == 0) return 0;
  if (argc > 2 && std::strcmp(argv[1], "--become") == 0) return ::execv(argv[2], argv + 2);
  if (argc > 1 && std::strcmp(argv[1], "--pause") == 0) return ::pause();
  if (argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const std::optional<Setup> setup = ReadArguments(argc, argv);
  if (!setup) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  testing::CatchInterrupts();
  try {
    Measure(*setup);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "runtime_bench: %s\n", failure.why.c_str());
    return failure.exit_code;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
