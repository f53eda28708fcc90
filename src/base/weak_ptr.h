// SPDX-License-Identifier: Apache-2.0
// A pointer for callbacks that may run after their object is gone.
//
//   class Prober {
//     void Start() {
//       runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
//         if (weak) Probe();
//       });
//     }
//     WeakPtrFactory<Prober> weak_{this};  // keep last: it ends before what callbacks use
//   };
//
// Threads: a WeakPtr may be copied and destroyed on any thread, and is read on the thread on which
// its object is destroyed. Cost: one allocation for each object.
#pragma once

#include <memory>
#include <utility>

namespace tessera {

template <typename T>
class WeakPtr {
 public:
  WeakPtr() = default;  // to no object

  // Null when the object is gone.
  T* get() const { return object_ != nullptr ? *object_ : nullptr; }
  explicit operator bool() const { return get() != nullptr; }
  T* operator->() const { return get(); }  // REQUIRES: the object is there
  T& operator*() const { return *get(); }

 private:
  template <typename>
  friend class WeakPtrFactory;
  explicit WeakPtr(std::shared_ptr<T*> object) : object_(std::move(object)) {}

  std::shared_ptr<T*> object_;
};

// A member of the object that its pointers lead to.
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
