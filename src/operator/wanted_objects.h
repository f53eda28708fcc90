// SPDX-License-Identifier: Apache-2.0
// The wanted objects by component, with the state of each: whether the API server has the wanted
// text, whether another client has changed the object since, and its error. Sends nothing: the
// caller applies objects and reports the results.
//
// An object has drifted if another client has edited or deleted it. The API server records which
// fields were applied. WantedObjects keeps a digest of this record for each applied object. A
// watched object with another digest was edited.
//
// Threads: the runner's. The watches and the clock must outlive the object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/components/objects.h"
#include "src/kube/metadata_object.h"
#include "src/operator/object_watches.h"
#include "src/operator/resource_status.h"

namespace tessera::operators {

struct WantedObject {
  Json object;
  std::string component;
  std::string text;            // of `object`, to detect a change of the settings
  std::string applied_text;    // that the server has; "": unknown
  uint64_t fields_digest = 0;  // of the applied fields, see MetadataObject
  // The watch has not delivered the result of the last apply yet, so the watched state is older.
  bool awaits_event = false;
  MonotonicTime applied_at{};
  int repairs = 0;
  MonotonicTime repaired_at{};
  Status error;
};

// The API server's response to an apply.
enum class ApplyEffect : uint8_t { kUnchanged, kChanged, kCreated };

class WantedObjects {
 public:
  struct WantedComponent {
    std::string name;
    std::vector<std::string> keys;  // of objects, in the order in which they are applied
  };

  WantedObjects(const ObjectWatches& watches, const Clock& clock)
      : watches_(watches), clock_(clock) {}

  // Replaces the wanted objects, and keeps the state of objects that stay. Sets the owner of all
  // objects, unless its uid is empty.
  void Set(std::vector<components::Component> components, const kube::OwnerReference& owner);

  const std::vector<WantedComponent>& components() const { return components_; }
  const WantedComponent* FindComponent(std::string_view name) const;
  const std::map<std::string, WantedObject>& objects() const { return objects_; }
  // Null if the object is not wanted.
  WantedObject* Find(const std::string& key);

  // Whether another client has edited or deleted the applied object.
  bool HasDrifted(const WantedObject& object) const;
  bool NeedsApply(const WantedObject& object) const;
  // The wait before an object that drifted is restored, which grows with each restoration.
  Duration RepairWait(const WantedObject& object) const;
  bool AllApplied() const;

  // Call when the watch has delivered the object.
  void OnDelivered(const std::string& key);
  // Call when the watch has listed a scope. An applied object that is not listed was deleted,
  // unless it was applied while the list was under way: then an event follows. Returns the time
  // after which to call again because of such objects; 0: no call is needed.
  Duration OnListed(const WatchScope& scope);
  // Call when the server has accepted `text`. `version`: the resourceVersion before the apply, ""
  // if the object did not exist.
  Result<ApplyEffect> OnApplied(WantedObject* object, const std::string& text,
                                const std::string& version, const Json& answer) const;
  // Call when an object that had drifted was restored.
  void OnRepaired(WantedObject* object) const;

  ComponentReport ReportOf(const WantedComponent& component) const;

 private:
  // Whether another client has changed the object repeatedly in recent time.
  bool IsContested(const WantedObject& object) const;
  // Returns "" if the object is ready.
  std::string WhyNotReady(const WantedObject& object) const;

  const ObjectWatches& watches_;
  const Clock& clock_;
  std::vector<WantedComponent> components_;
  std::map<std::string, WantedObject> objects_;  // by key
};

// "DaemonSet tessera-agent".
std::string TitleOf(const Json& object);
// Whether the type is a workload or a webhook configuration. Such objects are deleted before
// others: their deletion ends pods, or stops webhook calls that would fail without these pods.
bool IsWorkloadOrWebhook(const std::string& type);

}  // namespace tessera::operators
