// SPDX-License-Identifier: Apache-2.0
// Walks over JSON text member by member without building a document: for requests of megabytes with
// few relevant members, where json.h would allocate for every word.
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
// After an error every call returns nothing or false, so that loops end; Finish returns the error.
// Skip checks brackets and strings only. It also accepts words that are not JSON values, such as
// abc without quotes.
//
// Threads: one. Ownership: returns views into the text; the reader owns strings that had escapes.
// Cost: one pass over the text; allocates only for strings with escapes.
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

  // Stores strings that had escapes in `unescaped_strings` if it is given, so that views of them
  // can outlive the reader.
  explicit JsonReader(std::string_view text, std::deque<std::string>* unescaped_strings = nullptr)
      : text_(text),
        unescaped_strings_(unescaped_strings != nullptr ? unescaped_strings : &owned_strings_) {}
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  // INVALID_ARGUMENT with the offset and the expected text.
  const Status& status() const { return status_; }
  // The reader's error, or an error if anything but white space follows.
  Status Finish();

  // Skips a null if it is next; returns false otherwise.
  bool TakeNull();
  // The first character of the next value, which identifies its kind; 0 at the end.
  char Peek();

  bool BeginObject() { return Begin('{', "an object"); }
  // False at the object's end.
  bool NextMember(std::string_view* key);
  bool BeginArray() { return Begin('[', "an array"); }
  bool NextItem();

  // The result is valid as long as the text and the unescaped strings. If `quoted` is given, it is
  // set to the string as it stands in the text, with quotes and escapes.
  std::string_view String(std::string_view* quoted = nullptr);
  // Reads the remaining items of an array, which must be strings; equivalent to NextItem and
  // String, but faster. Appends each string to `out`, and to `quoted` as it stands in the text.
  // Fails if there are more than `max_items`.
  void Strings(size_t max_items, std::vector<std::string_view>* out,
               std::vector<std::string_view>* quoted);
  int64_t Int();
  // Skips any value and returns its text.
  std::string_view Skip();

 private:
  bool Begin(char bracket, std::string_view expected);
  // Whether another element follows; consumes the comma or the bracket.
  bool NextElement(char close);
  void SkipSpace();
  // Skips a string after its opening quote; false if it does not end. Sets `escaped` if it has
  // escapes.
  bool ScanString(bool* escaped);
  bool ScanWord();
  void Fail(std::string_view expected);
  void FailTooDeep();

  const std::string_view text_;
  std::deque<std::string> owned_strings_;
  std::deque<std::string>* const unescaped_strings_;
  size_t at_ = 0;
  size_t depth_ = 0;
  bool first_ = false;  // directly after an opening bracket
  Status status_;
};

}  // namespace tessera
