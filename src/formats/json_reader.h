// SPDX-License-Identifier: Apache-2.0
// Walks over JSON text member by member without building a document: for requests of megabytes of
// which little is wanted, where json.h would allocate for every word.
//
//   JsonReader reader(text);
//   std::string_view key;
//   reader.BeginObject();
//   while (reader.NextMember(&key)) {
//     if (key == "names") for (reader.BeginArray(); reader.NextItem();) Use(reader.String());
//     else reader.Skip();
//   }
//   RETURN_IF_ERROR(reader.Finish());
//
// After an error every call gives nothing and false, so loops end by themselves; Finish tells it.
// What is skipped is held to brackets, strings and words, not to every rule of numbers.
//
// Threads: one. Ownership: views into the text; a string with escapes is kept by the reader. Cost:
// a pass over the text; allocates only for strings with escapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera {

class JsonReader {
 public:
  static constexpr size_t kMaxDepth = 64;

  // Strings with escapes are put into `kept`, where views of them shall outlive the reader.
  explicit JsonReader(std::string_view text, std::deque<std::string>* kept = nullptr)
      : text_(text), kept_(kept != nullptr ? kept : &own_) {}
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  // INVALID_ARGUMENT with the offset and what was expected there.
  const Status& status() const { return status_; }
  // Also an error where more than white space follows.
  Status Finish();

  // Passes over a null that is next; false where something else is.
  bool TakeNull();
  // The next value's first character, 0 at the end: for values of several kinds.
  char Peek();

  bool BeginObject() { return Begin('{', "an object"); }
  // False at the object's end.
  bool NextMember(std::string_view* key);
  bool BeginArray() { return Begin('[', "an array"); }
  bool NextItem();

  // Valid for as long as the text is, and what strings are kept in. `quoted`, where wanted: as it
  // stands in the text.
  std::string_view String(std::string_view* quoted = nullptr);
  // Items of an array that has been begun, all of them strings, to its end; the same as NextItem
  // and String, in less time. `quoted` as with String. Stops with an error after `most`.
  void Strings(size_t most, std::vector<std::string_view>* out,
               std::vector<std::string_view>* quoted);
  int64_t Int();
  // Passes over any value and gives its text.
  std::string_view Skip();

 private:
  bool Begin(char bracket, std::string_view what);
  // Whether another element follows; eats the comma, or the bracket.
  bool NextElement(char close);
  void SkipSpace();
  // Past a string's opening quote; false if it does not end. `escaped` says whether it has escapes.
  bool PassString(bool* escaped);
  bool PassWord();
  void Fail(std::string_view expected);

  const std::string_view text_;
  std::deque<std::string> own_;
  std::deque<std::string>* const kept_;
  size_t at_ = 0;
  size_t depth_ = 0;
  bool first_ = false;  // in a bracket that has just been opened
  Status status_;
};

}  // namespace tessera
