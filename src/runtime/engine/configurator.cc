// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/configurator.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>

#include "src/base/log.h"
#include "src/runtime/engine/text_diff.h"
#include "src/runtime/engine/validate.h"

namespace tessera::engine {
namespace {

constexpr Duration kValidateDeadline = std::chrono::seconds(30);
// Together one second: longer than Recover holds the lock while it reads the record.
constexpr int kLockAttempts = 20;
constexpr int kLockPauseMs = 50;
constexpr int kRecoverPauseMs = 500;

Status FirstError(const Status& first, const Status& second) { return first.ok() ? second : first; }

std::optional<std::string> TextOf(const std::optional<FileState>& state) {
  return state ? std::optional(state->text) : std::nullopt;
}

}  // namespace

Configurator::Configurator(ConfigureOptions options, const HostRoot* host)
    : options_(std::move(options)), host_(*host), reloader_(options_.reload, host) {}

Status Configurator::Lock() {
  const std::string dir = DirName(options_.settings.config);
  ASSIGN_OR_RETURN(const std::string real, host_.Resolve(dir));
  lock_ = Fd(::open(real.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A missing directory needs no lock: of two runs only one succeeds in creating it.
  if (!lock_.valid()) return errno == ENOENT ? Status::Ok() : Status::FromErrno(dir, errno);
  for (int i = 0; i < kLockAttempts; ++i) {
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return Status::Ok();
    ::poll(nullptr, 0, kLockPauseMs);
  }
  lock_.Reset();
  return Error(Code::kUnavailable, "{} is being configured by another process", dir);
}

Status Configurator::Load() {
  if (!options_.dry_run) RETURN_IF_ERROR(Lock());
  ASSIGN_OR_RETURN(record_, LoadRecord(host_, options_.settings.config));
  return Status::Ok();
}

// The version of the running engine. If that is unknown, the recorded version; without a record,
// the version of the installed program.
std::optional<Version> Configurator::EngineVersion() const {
  if (options_.settings.engine_version) return options_.settings.engine_version;
  if (reloader_.info_before() && reloader_.info_before()->version)
    return reloader_.info_before()->version;
  if (record_ && record_->engine_version) return record_->engine_version;
  return VersionOfProgram(options_.engine, host_, options_.validate_program);
}

Result<std::optional<FileState>> Configurator::RemoveTesseraEdits(
    const RecordedFile& file, const std::optional<FileState>& current) const {
  if (current && current->text == file.written_text) return file.original;
  // An interrupted run ended before it wrote this file.
  if (current == file.original) return current;
  if (!current) return current;
  auto text = EditText(file.format, current->text, file.undo);
  if (!text.ok()) {
    return text.status().Annotate(fmt::format(
        "{} was changed since it was configured, and Tessera's keys cannot be removed", file.path));
  }
  FileState state = *current;
  state.text = *std::move(text);
  return std::optional<FileState>(std::move(state));
}

Result<std::optional<FileState>> Configurator::BaseOf(const std::string& path) const {
  ASSIGN_OR_RETURN(std::optional<FileState> current, host_.Read(path));
  const RecordedFile* const file = record_ ? record_->Find(path) : nullptr;
  if (file == nullptr) return current;
  return RemoveTesseraEdits(*file, current);
}

ConfigTree Configurator::BaseTree() const {
  ConfigTree tree;
  tree.read = [this](const std::string& path) -> Result<std::optional<std::string>> {
    ASSIGN_OR_RETURN(const std::optional<FileState> state, BaseOf(path));
    return TextOf(state);
  };
  tree.glob = [this](const std::string& pattern) { return host_.Glob(pattern); };
  return tree;
}

Status Configurator::SetTargets(const Plan& plan) {
  RETURN_IF_ERROR(SetTargetsToBase());
  new_record_ = Record{};
  if (record_) new_record_->dirs = record_->dirs;
  for (const FilePlan& file : plan.files) {
    ASSIGN_OR_RETURN(const std::optional<FileState> base, BaseOf(file.path));
    const std::optional<std::string> text = TextOf(base);
    RecordedFile recorded{file.path, file.format, base, {}, {}};
    ASSIGN_OR_RETURN(recorded.written_text, ApplyFilePlan(file, text));
    ASSIGN_OR_RETURN(recorded.undo, UndoEdits(file, text));
    FileState target = base.value_or(FileState{});
    target.text = recorded.written_text;
    targets_[file.path] = std::move(target);
    if (!base || base->text != recorded.written_text)
      new_record_->files.push_back(std::move(recorded));
  }
  if (new_record_->files.empty()) new_record_.reset();
  return ReadCurrent();
}

Status Configurator::SetTargetsToBase() {
  targets_.clear();
  if (!record_) return Status::Ok();
  for (const RecordedFile& file : record_->files) {
    ASSIGN_OR_RETURN(targets_[file.path], BaseOf(file.path));
  }
  return Status::Ok();
}

Status Configurator::ReadCurrent() {
  current_.clear();
  for (const auto& [path, target] : targets_) {
    ASSIGN_OR_RETURN(current_[path], host_.Read(path));
  }
  return Status::Ok();
}

std::string Configurator::DiffText() const {
  std::string out;
  for (const auto& [path, target] : targets_) {
    out += UnifiedDiff(path, TextOf(current_.at(path)), TextOf(target));
  }
  return out;
}

Status Configurator::Validate(const Plan& plan) {
  std::map<std::string, std::optional<std::string>> files;
  for (const auto& [path, target] : targets_) files[path] = TextOf(target);
  ASSIGN_OR_RETURN(const Validation validation,
                   ValidateByEngine(options_.engine, host_, options_.settings, plan, files,
                                    options_.validate_program, kValidateDeadline));
  outcome_.notes.push_back(validation.validated
                               ? fmt::format("{} accepts the configuration", validation.note)
                               : fmt::format("checked by Tessera alone: {}", validation.note));
  return Status::Ok();
}

Result<Outcome> Configurator::Configure() {
  RETURN_IF_ERROR(Load());
  if (WasInterrupted() && record_->served_cri) reloader_.RequireCri();
  Status prepared = reloader_.Prepare();
  if (WasInterrupted() && !reloader_.Serves()) {
    if (!reloader_.AwaitEngine()) return RestoreBase();
    prepared = reloader_.Prepare();
  }
  EngineSettings settings = options_.settings;
  settings.engine_version = EngineVersion();
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(options_.engine, settings, BaseTree()));
  outcome_.notes = plan.notes;
  RETURN_IF_ERROR(SetTargets(plan));
  outcome_.diff = DiffText();
  outcome_.changed = AnyChange();
  if (options_.dry_run) return outcome_;
  if (!outcome_.changed && !(record_ && record_->pending)) return outcome_;
  RETURN_IF_ERROR(prepared);
  if (new_record_) {
    new_record_->engine_version = settings.engine_version;
    new_record_->served_cri = (reloader_.info_before() && reloader_.info_before()->serves_cri) ||
                              (WasInterrupted() && record_->served_cri);
  }
  const auto dirs = host_.MakeParents(options_.settings.config);
  RETURN_IF_ERROR(dirs.status());
  if (new_record_) new_record_->dirs.insert(new_record_->dirs.end(), dirs->begin(), dirs->end());
  const Status valid = Validate(plan);
  if (!valid.ok()) {
    RemoveDirs(*dirs);
    return valid;
  }
  RETURN_IF_ERROR(
      Commit({.runtime = settings.runtime_name, .is_default = settings.set_as_default}));
  return outcome_;
}

Result<Outcome> Configurator::Undo() {
  RETURN_IF_ERROR(Load());
  if (!record_) {
    outcome_.notes.push_back(
        fmt::format("nothing to undo: {} does not exist", RecordPath(options_.settings.config)));
    return outcome_;
  }
  RETURN_IF_ERROR(SetTargetsToBase());
  RETURN_IF_ERROR(ReadCurrent());
  for (const RecordedFile& file : record_->files) {
    const auto& current = current_.at(file.path);
    if (current && current->text == file.written_text) continue;
    outcome_.notes.push_back(fmt::format(
        "{} was {} since it was configured: {}", file.path, current ? "changed" : "removed",
        current ? "only Tessera's keys are removed, the rest stays" : "it is not restored"));
  }
  outcome_.diff = DiffText();
  outcome_.changed = AnyChange();
  if (options_.dry_run) return outcome_;
  if (outcome_.changed) RETURN_IF_ERROR(reloader_.Prepare());
  RETURN_IF_ERROR(Commit({}));
  return outcome_;
}

Result<bool> Configurator::FindInterruptedRun() {
  // First reads without the lock, so that a run that is starting can take it. An error here may
  // come from a run that is removing the backups; Load then reads again under the lock.
  const auto record = LoadRecord(host_, options_.settings.config);
  if (record.ok() && !(*record && (*record)->pending)) return false;
  RETURN_IF_ERROR(Load());
  return WasInterrupted();
}

Status Configurator::Recover() {
  const MonotonicTime end = SystemClock().Now() + options_.reload.timeout;
  for (;;) {
    const auto interrupted = FindInterruptedRun();
    if (interrupted.status().code() == Code::kUnavailable) return Status::Ok();
    RETURN_IF_ERROR(interrupted.status());
    if (!*interrupted) return Status::Ok();
    if (record_->served_cri) reloader_.RequireCri();
    const bool is_last = SystemClock().Now() >= end;
    if (!is_last) lock_.Reset();  // the query may block
    if (reloader_.Serves()) return Status::Ok();
    if (is_last) break;
    ::poll(nullptr, 0, kRecoverPauseMs);
  }
  // Selects how to reload the engine. An error means that the engine does not answer; then the
  // files are restored without a reload.
  (void)reloader_.Prepare();
  const Status restored = RestoreBase();
  lock_.Reset();
  return restored;
}

Status Configurator::WriteAll(const FileStates& states) const {
  for (const auto& [path, state] : states) {
    // Files that already have the wanted content keep their inode.
    ASSIGN_OR_RETURN(const std::optional<FileState> current, host_.Read(path));
    if (current == state) continue;
    if (state) {
      RETURN_IF_ERROR(host_.Write(path, *state));
    } else {
      RETURN_IF_ERROR(host_.Remove(path));
    }
  }
  return Status::Ok();
}

Status Configurator::WriteForReload(const FileStates& states, Expectation* expectation) const {
  if (options_.engine != EngineKind::kDocker || !expectation->runtime.empty())
    return WriteAll(states);
  FileStates reload_states = states;
  for (auto& [path, state] : reload_states) {
    ASSIGN_OR_RETURN(DockerReload reload, MakeDockerReload(TextOf(state)));
    if (!state) state = FileState{};
    state->text = std::move(reload.text);
    *expectation = {.runtime = std::move(reload.default_runtime), .is_default = true};
  }
  return WriteAll(reload_states);
}

Status Configurator::Commit(Expectation expectation) {
  const bool reload = outcome_.changed || (record_ && record_->pending);
  Status status;
  bool reloaded = false;
  if (new_record_) {
    for (const RecordedFile& file : new_record_->files) {
      const auto created_dirs = host_.MakeParents(file.path);
      if (!created_dirs.ok()) return RollBack(created_dirs.status(), /*reload=*/false);
      new_record_->dirs.insert(new_record_->dirs.end(), created_dirs->begin(), created_dirs->end());
    }
    new_record_->pending = true;
    status = SaveRecord(host_, options_.settings.config, *new_record_);
  }
  if (status.ok() && reload) {
    status = WriteForReload(targets_, &expectation);
    if (status.ok()) {
      outcome_.notes.push_back(reloader_.reload_description());
      reloaded = true;
      status = reloader_.ReloadAndCheck(expectation);
    }
  }
  if (status.ok()) status = WriteAll(targets_);
  if (!status.ok()) return RollBack(status, reloaded);
  if (new_record_) {
    new_record_->pending = false;
    RETURN_IF_ERROR(SaveRecord(host_, options_.settings.config, *new_record_));
    return record_ ? RemoveBackups(host_, options_.settings.config, *record_, *new_record_)
                   : Status::Ok();
  }
  if (!record_) return Status::Ok();
  RETURN_IF_ERROR(RemoveRecord(host_, options_.settings.config, *record_));
  RemoveDirs(record_->dirs);
  return Status::Ok();
}

Status Configurator::RollBack(const Status& cause, bool reload) {
  Log(Severity::kError, "rolling back", {{"cause", cause.message()}});
  // After an interrupted run the original files are restored, not the files of that run.
  if (WasInterrupted()) return RestoreBase().Annotate(cause.message());
  Expectation expectation;
  Status status = reload ? WriteForReload(current_, &expectation) : Status::Ok();
  if (status.ok() && reload) status = reloader_.ReloadAndCheck(expectation);
  const Status written = WriteAll(current_);
  if (status.ok()) status = written;
  if (written.ok()) {
    if (record_) {
      status = FirstError(status, SaveRecord(host_, options_.settings.config, *record_));
    } else if (new_record_) {
      const Status removed = RemoveRecord(host_, options_.settings.config, *new_record_);
      if (removed.ok()) RemoveDirs(new_record_->dirs);
      status = FirstError(status, removed);
    }
  }
  if (status.ok()) return cause.Annotate("rolled back, every file has its earlier content");
  return Error(Code::kInternal,
               "{}; rollback failed too: {}: restore the originals, *.tessera-backup in {}",
               cause.message(), status.message(), DirName(options_.settings.config));
}

Status Configurator::RestoreBase() {
  const std::string config_dir = DirName(options_.settings.config);
  Status serves;
  const auto restore = [&]() -> Status {
    RETURN_IF_ERROR(SetTargetsToBase());
    // A reload is needed even though the engine is down: its supervisor may be restarting it in a
    // loop, and systemd gives up after StartLimitBurst failures.
    Expectation expectation;
    RETURN_IF_ERROR(WriteForReload(targets_, &expectation));
    serves = reloader_.ReloadAndCheck(expectation);
    RETURN_IF_ERROR(WriteAll(targets_));
    RETURN_IF_ERROR(RemoveRecord(host_, options_.settings.config, *record_));
    RemoveDirs(record_->dirs);
    return Status::Ok();
  };
  const Status restored = restore();
  if (!restored.ok()) {
    return Error(Code::kInternal,
                 "{} was left half configured, and restoring it failed: {}: restore the originals, "
                 "*.tessera-backup in {}",
                 options_.settings.config, restored.message(), config_dir);
  }
  if (!serves.ok()) {
    return Error(
        Code::kInternal,
        "an interrupted run had changed {}; now every file is restored to its state before "
        "Tessera, but {} does not serve: {}",
        config_dir, NameOf(options_.engine), serves.message());
  }
  return Error(Code::kAborted,
               "an interrupted run had changed {}, and {} has not served since; now every file is "
               "restored to its state before Tessera: run the command again",
               config_dir, NameOf(options_.engine));
}

void Configurator::RemoveDirs(const std::vector<std::string>& dirs) const {
  for (auto dir = dirs.rbegin(); dir != dirs.rend(); ++dir) {
    // Directories that other files use now are not empty and stay.
    const auto real = host_.Resolve(*dir);
    if (real.ok()) (void)!::rmdir(real->c_str());
  }
}

void GuardEngine(const std::function<ConfigureOptions()>& options, const HostRoot* host) {
  constexpr int kIntervalMs =
      std::chrono::duration_cast<std::chrono::milliseconds>(kGuardInterval).count();
  std::string problem;
  for (;; ::poll(nullptr, 0, kIntervalMs)) {
    const ConfigureOptions current = options();
    const Status recovered = Configurator(current, host).Recover();
    // A damaged record stays until an administrator removes it: log it once.
    if (recovered.message() == problem) continue;
    problem = recovered.message();
    if (recovered.ok()) continue;
    Log(Severity::kError, problem);
    if (recovered.code() != Code::kAborted) continue;
    const bool serves = Reloader(current.reload, host).AwaitEngine();
    Log(serves ? Severity::kInfo : Severity::kError,
        fmt::format(
            "{} {}", NameOf(current.engine),
            serves ? "serves again" : "does not serve, although its original files are restored"));
  }
}

}  // namespace tessera::engine
