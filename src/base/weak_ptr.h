// SPDX-License-Identifier: Apache-2.0
// A pointer for callbacks that may run after their object is destroyed.
//
//   class Prober {
//     void Start() {
//       runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
//         if (weak) Probe();
//       });
//     }
//     WeakPtrFactory<Prober> weak_{this};  // last member, destroyed first
//   };
//
// Threads: a WeakPtr may be copied and destroyed on any thread, but must be used only on the thread
// that destroys its object. Cost: one allocation for each object.
#pragma once

#include <memory>
#include <utility>

namespace tessera {

template <typename T>
class WeakPtr {
 public:
  WeakPtr() = default;  // null

  // Null if the object is destroyed.
  T* get() const { return object_ != nullptr ? *object_ : nullptr; }
  explicit operator bool() const { return get() != nullptr; }
  T* operator->() const { return get(); }  // REQUIRES: not null
  T& operator*() const { return *get(); }

 private:
  template <typename>
  friend class WeakPtrFactory;
  explicit WeakPtr(std::shared_ptr<T*> object) : object_(std::move(object)) {}

  std::shared_ptr<T*> object_;
};

// A member of the object to which the pointers refer.
template <typename T>
class WeakPtrFactory {
 public:
  explicit WeakPtrFactory(T* object) : object_(std::make_shared<T*>(object)) {}
  ~WeakPtrFactory() { *object_ = nullptr; }
  WeakPtrFactory(const WeakPtrFactory&) = delete;
  WeakPtrFactory& operator=(const WeakPtrFactory&) = delete;

  WeakPtr<T> Get() const { return WeakPtr<T>(object_); }

 private:
  const std::shared_ptr<T*> object_;
};

}  // namespace tessera
