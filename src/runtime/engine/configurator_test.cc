// SPDX-License-Identifier: Apache-2.0
// Whole runs with real files and a fake engine with faults: a small process behind a unix socket
// that serves Docker's API and reloads its configuration on SIGHUP.
#include "src/runtime/engine/configurator.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>

#include "src/runtime/engine/configure.h"

namespace tessera::engine {
namespace {

using ::testing::HasSubstr;

enum class EngineBehavior {
  kReloads,
  kIgnoresReload,
  kHangsWithTessera,  // does not answer while its configuration names Tessera's runtime
  kExitsOnReload,     // exits on SIGHUP and is not started again
};

volatile sig_atomic_t g_hangups = 0;

class FakeDocker {
 public:
  FakeDocker(const std::string& socket_path, const std::string& config, EngineBehavior behavior) {
    const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener.get(), 16), 0);
    pid_ = ::fork();
    if (pid_ == 0) Serve(listener.get(), config, behavior);
  }
  ~FakeDocker() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  FakeDocker(const FakeDocker&) = delete;
  FakeDocker& operator=(const FakeDocker&) = delete;

 private:
  [[noreturn]] static void Serve(int listener, const std::string& config, EngineBehavior behavior) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction action {};
    action.sa_handler = [](int) { g_hangups = g_hangups + 1; };
    if (behavior != EngineBehavior::kExitsOnReload) ::sigaction(SIGHUP, &action, nullptr);
    // Like dockerd: keeps the values of removed keys, and all values if the file is missing.
    std::string default_runtime = "runc";
    bool knows_nvidia = false;
    const auto load = [&] {
      const Result<Json> file = ParseJson(ReadFile(config).value_or(""));
      if (!file.ok()) return;
      const Json* runtimes = file->Find("runtimes");
      if (runtimes != nullptr) knows_nvidia = runtimes->Find("nvidia") != nullptr;
      default_runtime = file->StringAt("default-runtime").value_or(default_runtime);
    };
    load();
    int seen_hangups = 0;
    for (;;) {
      const Fd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (g_hangups != seen_hangups && behavior != EngineBehavior::kIgnoresReload) load();
      seen_hangups = g_hangups;
      if (!peer.valid()) continue;
      if (behavior == EngineBehavior::kHangsWithTessera && knows_nvidia) continue;
      std::array<char, 4096> request;
      const ssize_t size = ::recv(peer.get(), request.data(), request.size(), 0);
      const bool info = size > 9 && std::string_view(request.data(), 9) == "GET /info";
      const std::string body =
          !info ? "OK"
                : fmt::format(R"({{"ServerVersion":"25.0.1","DefaultRuntime":"{}","Runtimes":{}}})",
                              default_runtime,
                              knows_nvidia ? R"({"runc":{},"crun":{},"nvidia":{}})"
                                           : R"({"runc":{},"crun":{}})");
      const std::string answer =
          fmt::format("HTTP/1.0 200 OK\r\nX-Reloads: {}\r\n\r\n{}", seen_hangups, body);
      (void)!::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  pid_t pid_ = -1;
};

class ConfiguratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirs(dir_.path() + "/etc/docker").ok());
    ASSERT_TRUE(MakeDirs(dir_.path() + "/run").ok());
  }

  ConfigureOptions Docker() const {
    ConfigureOptions options;
    options.engine = EngineKind::kDocker;
    options.settings.config = kConfig;
    options.settings.runtime_path = "/opt/tessera/bin/tessera-runtime";
    options.settings.set_as_default = true;
    options.reload.engine = options.engine;
    options.reload.socket = "/run/docker.sock";
    options.reload.mode = RestartMode::kAuto;
    options.reload.timeout = engine_timeout_;
    return options;
  }
  ConfigureOptions Containerd() const {
    ConfigureOptions options = Docker();
    options.engine = options.reload.engine = EngineKind::kContainerd;
    options.settings.config = "/etc/containerd/config.toml";
    options.settings.drop_in = "/etc/containerd/conf.d/99-tessera.toml";
    options.reload.socket = "/run/containerd.sock";
    return options;
  }
  Result<Outcome> Configure(const ConfigureOptions& options) const {
    return Configurator(options, &host_).Configure();
  }
  Result<Outcome> Undo(const ConfigureOptions& options) const {
    return Configurator(options, &host_).Undo();
  }
  // Makes the record look as if the last run had been killed before it checked the engine.
  void InterruptLastRun() const {
    auto record = LoadRecord(host_, kConfig);
    ASSERT_TRUE(record.ok() && record->has_value());
    (*record)->pending = true;
    ASSERT_TRUE(SaveRecord(host_, kConfig, **record).ok());
  }
  std::string SocketPath() const { return dir_.path() + "/run/docker.sock"; }

  void Put(const std::string& path, std::string_view text, mode_t mode = 0644) const {
    ASSERT_TRUE(WriteFileAtomically(dir_.path() + path, text, mode).ok());
  }
  std::string Text(const std::string& path) const {
    return ReadFile(dir_.path() + path).value_or("(no file)");
  }
  // Every file and directory with its content.
  std::map<std::string, std::string> AllFiles(const std::string& below = "/etc") const {
    std::map<std::string, std::string> all;
    const auto names = ListDir(dir_.path() + below);
    if (!names.ok()) {
      const auto state = host_.Read(below);
      all[below] =
          state.ok() && *state ? fmt::format("{:o} {}", (*state)->mode, (*state)->text) : "?";
      return all;
    }
    all[below] = "/";
    for (const std::string& name : *names) all.merge(AllFiles(JoinPath(below, name)));
    return all;
  }

  static constexpr char kConfig[] = "/etc/docker/daemon.json";
  // For engines that serve in the end, even on a busy machine.
  static constexpr Duration kServingEngineTimeout = std::chrono::seconds(20);
  // For engines that answer at first, and then fail.
  static constexpr Duration kFailingEngineTimeout = std::chrono::milliseconds(1500);
  Duration engine_timeout_ = std::chrono::milliseconds(400);
  TempDir dir_;
  HostRoot host_{dir_.path()};
};

TEST_F(ConfiguratorTest, ReloadsAndChecksThatTheEngineKnowsTheRuntime) {
  engine_timeout_ = kServingEngineTimeout;
  Put(kConfig, "{\"log-driver\": \"json-file\"}", 0600);
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
  const auto outcome = Configure(Docker());
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_TRUE(outcome->changed);
  EXPECT_THAT(outcome->notes, ::testing::Contains(HasSubstr("SIGHUP to docker")));
  EXPECT_THAT(Text(kConfig), HasSubstr("\"default-runtime\":\"nvidia\""));
}

TEST_F(ConfiguratorTest, SecondRunChangesAndReloadsNothing) {
  engine_timeout_ = kServingEngineTimeout;
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
  ASSERT_TRUE(Configure(Docker()).ok());
  const auto before = AllFiles();
  const auto outcome = Configure(Docker());
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->changed);
  EXPECT_EQ(outcome->diff, "");
  EXPECT_THAT(outcome->notes, ::testing::Not(::testing::Contains(HasSubstr("SIGHUP"))));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, UndoRestoresBytesAndModeAndRemovesNewFiles) {
  engine_timeout_ = kServingEngineTimeout;
  Put(kConfig, "{\"a\" :1.0}\r\n", 0640);
  auto before = AllFiles();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
  ASSERT_TRUE(Configure(Docker()).ok());
  ASSERT_TRUE(Undo(Docker()).ok());
  EXPECT_EQ(AllFiles(), before);

  ASSERT_EQ(::unlink((dir_.path() + kConfig).c_str()), 0);
  ASSERT_EQ(::rmdir((dir_.path() + "/etc/docker").c_str()), 0);
  before = AllFiles();
  ASSERT_TRUE(Configure(Docker()).ok());
  EXPECT_NE(AllFiles(), before);
  ASSERT_TRUE(Undo(Docker()).ok());
  EXPECT_EQ(AllFiles(), before);

  const auto again = Undo(Docker());
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->notes, ::testing::Contains(HasSubstr("nothing to undo")));
}

TEST_F(ConfiguratorTest, UndoRestoresTheEnginesDefaultRuntime) {
  engine_timeout_ = kServingEngineTimeout;
  for (const char* text : {"", "{\"default-runtime\": \"crun\", \"runtimes\": {\"crun\": {}}}"}) {
    if (*text != '\0') Put(kConfig, text, 0644);
    const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
    ASSERT_TRUE(Configure(Docker()).ok());
    const auto query = [&] {
      return *QueryEngine(EngineKind::kDocker, SocketPath(), std::chrono::seconds(5));
    };
    EXPECT_EQ(query().default_runtime, "nvidia");
    const auto undone = Configurator(Docker(), &host_).Undo();
    ASSERT_TRUE(undone.ok()) << undone.status().ToString();
    EXPECT_EQ(query().default_runtime, *text == '\0' ? "runc" : "crun");
    EXPECT_EQ(ReadFile(dir_.path() + kConfig).value_or(""), text);
    ::unlink(SocketPath().c_str());
  }
}

TEST_F(ConfiguratorTest, RollsBackWhenTheEngineDoesNotKnowTheRuntime) {
  engine_timeout_ = kFailingEngineTimeout;
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kIgnoresReload);
  const auto outcome = Configure(Docker());
  EXPECT_EQ(outcome.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(),
              HasSubstr("rolled back, every file has its earlier content"));
  EXPECT_THAT(outcome.status().message(), HasSubstr("does not know the runtime nvidia"));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, RollsBackWhenTheEngineStopsAnswering) {
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kHangsWithTessera);
  const auto outcome = Configure(Docker());
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, ReportsAnEngineThatStaysDownAfterRollback) {
  engine_timeout_ = kFailingEngineTimeout;
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kExitsOnReload);
  const auto outcome = Configure(Docker());
  EXPECT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("rollback failed too"));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, ConfiguresAnEngineThatIsNotRunning) {
  const auto outcome = Configure(Docker());
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_THAT(outcome->notes, ::testing::Contains(HasSubstr("docker is not running")));
  EXPECT_THAT(Text(kConfig), HasSubstr("nvidia"));
}

TEST_F(ConfiguratorTest, SignalModeRequiresARunningEngine) {
  ConfigureOptions options = Docker();
  options.reload.mode = RestartMode::kSignal;
  const auto before = AllFiles();
  EXPECT_EQ(Configure(options).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, DryRunShowsTheDiffAndTouchesNothing) {
  Put(kConfig, "{}\n");
  const auto before = AllFiles();
  ConfigureOptions options = Docker();
  options.dry_run = true;
  const auto outcome = Configure(options);
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(outcome->diff, HasSubstr("+    \"default-runtime\": \"nvidia\""));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, UndoKeepsLaterChangesByOthers) {
  Put(kConfig, "{\n  \"a\": 1\n}\n");
  ASSERT_TRUE(Configure(Docker()).ok());
  const std::string ours = Text(kConfig);
  Put(kConfig, fmt::format("{{\n  \"debug\": true,{}", ours.substr(1)));
  const auto outcome = Undo(Docker());
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_THAT(outcome->notes, ::testing::Contains(HasSubstr("only Tessera's keys are removed")));
  const auto document = ParseJson(Text(kConfig));
  ASSERT_TRUE(document.ok());
  EXPECT_TRUE(document->BoolAt("debug").value_or(false));
  EXPECT_NE(document->Find("a"), nullptr);
  EXPECT_EQ(document->Find("default-runtime"), nullptr);
  EXPECT_EQ(Text("/etc/docker/daemon.json.tessera-record"), "(no file)");
}

TEST_F(ConfiguratorTest, UndoRejectsAFileThatDoesNotParse) {
  Put(kConfig, "{}");
  ASSERT_TRUE(Configure(Docker()).ok());
  Put(kConfig, "{ broken");
  const auto before = AllFiles();
  EXPECT_THAT(Undo(Docker()).status().message(), HasSubstr("Tessera's keys cannot be removed"));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, ReconfiguringStartsFromTheOriginal) {
  const std::string original = "{\"runtimes\":{\"nvidia\":{\"path\":\"old\"}}}";
  Put(kConfig, original);
  ASSERT_TRUE(Configure(Docker()).ok());
  ConfigureOptions other = Docker();
  other.settings.runtime_name = "tessera";
  other.settings.set_as_default = false;
  ASSERT_TRUE(Configure(other).ok());
  EXPECT_THAT(Text(kConfig), HasSubstr("{\"nvidia\":{\"path\":\"old\"},\"tessera\":"));
  ASSERT_TRUE(Undo(other).ok());
  EXPECT_EQ(Text(kConfig), original);
}

TEST_F(ConfiguratorTest, NextRunFinishesAnInterruptedRun) {
  Put(kConfig, "{\"a\":1}");
  ASSERT_TRUE(Configure(Docker()).ok());
  InterruptLastRun();
  engine_timeout_ = kServingEngineTimeout;
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
  const auto outcome = Configure(Docker());
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_FALSE(outcome->changed);
  EXPECT_THAT(outcome->notes, ::testing::Contains(HasSubstr("SIGHUP")));
  EXPECT_FALSE((*LoadRecord(host_, kConfig))->pending);
}

TEST_F(ConfiguratorTest, NextRunRestoresTheOriginalsIfTheEngineIsDown) {
  for (const auto behavior :
       {std::optional<EngineBehavior>(), std::optional(EngineBehavior::kHangsWithTessera)}) {
    Put(kConfig, "{\"a\":1}");
    const auto before = AllFiles();
    ASSERT_TRUE(Configure(Docker()).ok());
    InterruptLastRun();
    // The engine is not running, or does not answer with our configuration.
    std::optional<FakeDocker> docker;
    if (behavior) docker.emplace(SocketPath(), dir_.path() + kConfig, *behavior);
    const auto outcome = Configure(Docker());
    EXPECT_THAT(outcome.status().message(),
                HasSubstr("every file is restored to its state before Tessera"));
    EXPECT_EQ(AllFiles(), before);
    docker.reset();
    (void)::unlink(SocketPath().c_str());
    ASSERT_TRUE(Configure(Docker()).ok()) << "the next run starts from the originals";
    ASSERT_TRUE(Undo(Docker()).ok());
  }
}

TEST_F(ConfiguratorTest, NextRunRestoresTheOriginalsIfItCannotFinish) {
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  ASSERT_TRUE(Configure(Docker()).ok());
  InterruptLastRun();
  // The engine keeps its earlier configuration.
  const std::string other = dir_.path() + "/etc/before.json";
  const FakeDocker docker(SocketPath(), other, EngineBehavior::kIgnoresReload);
  const auto outcome = Configure(Docker());
  EXPECT_FALSE(outcome.ok());
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, ReportsAnEngineThatStaysDownAfterTheOriginalsAreRestored) {
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  ASSERT_TRUE(Configure(Docker()).ok());
  InterruptLastRun();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kExitsOnReload);
  engine_timeout_ = kFailingEngineTimeout;
  const auto outcome = Configure(Docker());
  EXPECT_THAT(outcome.status().message(),
              HasSubstr("restored to its state before Tessera, but docker does not serve"));
  EXPECT_EQ(AllFiles(), before);
}

// If SIGCHLD is ignored, the kernel reaps the child that does the work.
TEST_F(ConfiguratorTest, TheCommandEndsEvenIfItsCallerIgnoresSigchld) {
  std::vector<std::string> arguments = {"configure", "--engine=docker", "--undo",
                                        "--host-root=" + dir_.path()};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const auto earlier_handler = ::signal(SIGCHLD, SIG_IGN);
  const pid_t test_process = ::getpid();
  ::alarm(60);  // ends a test that waits for ever
  const int exit_code = ConfigureMain(static_cast<int>(argv.size()), argv.data());
  if (::getpid() != test_process) ::_exit(exit_code);
  ::alarm(0);
  ::signal(SIGCHLD, earlier_handler);
  EXPECT_EQ(exit_code, 0);
}

TEST_F(ConfiguratorTest, RecoverRestoresTheOriginalsIfTheEngineIsDown) {
  Put(kConfig, "{\"a\":1}");
  const auto before = AllFiles();
  EXPECT_TRUE(Configurator(Docker(), &host_).Recover().ok()) << "there was no run";
  ASSERT_TRUE(Configure(Docker()).ok());
  const auto configured = AllFiles();
  EXPECT_TRUE(Configurator(Docker(), &host_).Recover().ok()) << "the run was not interrupted";
  EXPECT_EQ(AllFiles(), configured);
  InterruptLastRun();
  EXPECT_THAT(Configurator(Docker(), &host_).Recover().message(),
              HasSubstr("every file is restored to its state before Tessera"));
  EXPECT_EQ(AllFiles(), before);
}

TEST_F(ConfiguratorTest, RecoverDoesNotTouchAnActiveRun) {
  ASSERT_TRUE(Configure(Docker()).ok());
  InterruptLastRun();
  const auto begun = AllFiles();
  const Fd held(::open((dir_.path() + "/etc/docker").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_TRUE(Configurator(Docker(), &host_).Recover().ok());
  EXPECT_EQ(AllFiles(), begun);
}

TEST_F(ConfiguratorTest, RecoverDoesNothingWhileTheEngineServes) {
  ASSERT_TRUE(Configure(Docker()).ok());
  InterruptLastRun();
  const auto begun = AllFiles();
  const FakeDocker docker(SocketPath(), dir_.path() + kConfig, EngineBehavior::kReloads);
  engine_timeout_ = kServingEngineTimeout;
  EXPECT_TRUE(Configurator(Docker(), &host_).Recover().ok());
  EXPECT_EQ(AllFiles(), begun);
  EXPECT_TRUE(Configure(Docker()).ok());
  EXPECT_FALSE((*LoadRecord(host_, kConfig))->pending);
}

TEST_F(ConfiguratorTest, TwoRunsExcludeEachOther) {
  const Fd held(::open((dir_.path() + "/etc/docker").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_EQ(Configure(Docker()).status().code(), Code::kUnavailable);
}

TEST_F(ConfiguratorTest, InvalidFilesAreRejectedAndNotChanged) {
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {"is a directory", [&] { ASSERT_TRUE(MakeDirs(dir_.path() + kConfig).ok()); }},
      {"dangling", [&] { ASSERT_EQ(::symlink("/gone", (dir_.path() + kConfig).c_str()), 0); }},
      {"no comments", [&] { Put(kConfig, "{ // x\n}"); }},
      {"line 1", [&] { Put(kConfig, "{\"a\": \"\xFF\"}"); }},
      {"restore the files by hand", [&] { Put("/etc/docker/daemon.json.tessera-record", "torn"); }},
  };
  for (const auto& [message, make] : cases) {
    make();
    const auto before = AllFiles();
    const auto outcome = Configure(Docker());
    EXPECT_FALSE(outcome.ok()) << message;
    EXPECT_THAT(outcome.status().message(), HasSubstr(message));
    EXPECT_EQ(AllFiles(), before) << message;
    ::unlink((dir_.path() + kConfig).c_str());
    ::rmdir((dir_.path() + kConfig).c_str());
    ::unlink(fmt::format("{}{}.tessera-record", dir_.path(), kConfig).c_str());
  }
}

TEST_F(ConfiguratorTest, ReadOnlyFileSystemIsReportedAndNothingChanges) {
  Put(kConfig, "{\"a\":1}");
  const std::string etc = dir_.path() + "/etc";
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(etc.c_str(), etc.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "mounting needs root: " << std::strerror(errno);
  }
  ASSERT_EQ(::mount("", etc.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
  const auto outcome = Configure(Docker());
  EXPECT_THAT(outcome.status().message(), HasSubstr("Read-only file system"));
  EXPECT_THAT(outcome.status().message(), ::testing::Not(HasSubstr("rollback failed too")));
  EXPECT_EQ(Text(kConfig), "{\"a\":1}");
  ::umount2(etc.c_str(), MNT_DETACH);
}

TEST_F(ConfiguratorTest, FileThatIsAMountPointIsReported) {
  Put(kConfig, "{\"a\":1}");
  const std::string config = dir_.path() + kConfig;
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(config.c_str(), config.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "mounting needs root: " << std::strerror(errno);
  }
  const auto outcome = Configure(Docker());
  EXPECT_THAT(outcome.status().message(), HasSubstr("mount its directory instead"));
  ::umount2(config.c_str(), MNT_DETACH);
  EXPECT_EQ(Text(kConfig), "{\"a\":1}");
}

// For any configuration and engine version, undo restores the same bytes.
TEST_F(ConfiguratorTest, UndoIsByteExactForRandomConfigurations) {
  std::mt19937 random(5);
  const auto pick = [&](size_t n) { return random() % n; };
  const std::vector<std::string> versions = {"", "version = 2", "version=3 # x", "version = 4"};
  const std::vector<std::string> bodies = {"",
                                           "# only a comment",
                                           "imports = ['/etc/containerd/conf.d/*.toml']",
                                           "imports = [\n]",
                                           "oom_score = -999",
                                           "disabled_plugins = ['cri']"};
  const std::vector<std::string> sections = {
      "", "[debug]\n  level = 'debug'",
      "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = "
      "'io.containerd.runc.v2'\noptions = { SystemdCgroup = true }",
      "[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = 'nvidia'\n"
      "  runtimes.nvidia.runtime_type = 'io.containerd.runc.v2'",
      "[plugins.cri]\n[plugins.cri.containerd.runtimes]"};
  const std::vector<std::optional<Version>> engines = {std::nullopt, Version{1, 6}, Version{2, 0},
                                                       Version{2, 1}, Version{2, 2}};
  ASSERT_TRUE(MakeDirs(dir_.path() + "/etc/containerd").ok());
  int configured = 0;
  for (int round = 0; round < 120; ++round) {
    std::string text;
    for (const std::string& part : {versions[pick(4)], bodies[pick(6)], sections[pick(5)]}) {
      text += part;
      if (!part.empty()) text.append(pick(8) == 0 ? 2 : 1, '\n');
    }
    if (pick(3) == 0 && !text.empty()) text.pop_back();
    if (pick(3) == 0) {
      for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
        text.insert(at, 1, '\r');
      }
    }
    Put("/etc/containerd/config.toml", text, pick(2) ? 0600 : 0644);
    const auto before = AllFiles();
    ConfigureOptions options = Containerd();
    options.settings.engine_version = engines[pick(5)];
    options.settings.set_as_default = pick(2) == 0;
    options.settings.enable_cdi = pick(2) == 0;
    const auto outcome = Configure(options);
    if (outcome.ok()) {
      ++configured;
      EXPECT_FALSE(Configure(options)->changed) << text;
      const auto undone = Undo(options);
      ASSERT_TRUE(undone.ok()) << undone.status().ToString();
    } else {
      ADD_FAILURE() << outcome.status().ToString() << "\n" << text;
    }
    ASSERT_EQ(AllFiles(), before) << text;
  }
  EXPECT_EQ(configured, 120);
}

}  // namespace
}  // namespace tessera::engine
