// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <algorithm>
#include <optional>

#include "src/base/strings.h"

namespace tessera {
namespace {

struct MemberSpan {
  std::string key;
  size_t begin = 0;  // the key's quote
  size_t value = 0;  // start of the value
  size_t end = 0;    // after the value
};
struct ObjectSpan {
  std::vector<MemberSpan> members;
  size_t open = 0;   // the opening bracket
  size_t close = 0;  // the closing bracket
};

// Walks over a text that the parser has accepted.
class JsonWalker {
 public:
  JsonWalker(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpace() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos) {
      ++at_;
    }
  }
  void SkipString() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
  }
  // Brackets in strings do not count.
  void SkipValue() {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        SkipString();
      } else if (c == '{' || c == '[') {
        ++depth, ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return;
        --depth, ++at_;
      } else if (depth == 0 && std::string_view(", \t\r\n").find(c) != std::string_view::npos) {
        return;
      } else {
        ++at_;
        continue;
      }
      if (depth == 0) return;
    }
  }

  Result<ObjectSpan> ReadObject() {
    ObjectSpan object;
    object.open = at_++;
    for (SkipSpace(); Peek() == '"'; SkipSpace()) {
      MemberSpan member;
      member.begin = at_;
      SkipString();
      ASSIGN_OR_RETURN(const Json key, ParseJson(text_.substr(member.begin, at_ - member.begin)));
      member.key = key.string_value();
      SkipSpace();
      ++at_;  // the colon
      SkipSpace();
      member.value = at_;
      SkipValue();
      member.end = at_;
      object.members.push_back(std::move(member));
      SkipSpace();
      if (Peek() == ',') ++at_;
    }
    if (Peek() != '}') return Error(Code::kInternal, "JSON: unexpected text at offset {}", at_);
    object.close = at_;
    return object;
  }

 private:
  const std::string_view text_;
  size_t at_;
};

class JsonPatch {
 public:
  explicit JsonPatch(std::string* text) : text_(*text) {
    const size_t newline = text_.find('\n');
    if (newline != std::string::npos && newline > 0 && text_[newline - 1] == '\r') eol_ = "\r\n";
  }

  Status Set(const KeyPath& path, const Json& value) {
    ASSIGN_OR_RETURN(ObjectSpan object, Root());
    DetectIndent(object);
    for (size_t i = 0;; ++i) {
      const MemberSpan* member = FindLast(object, path[i]);
      if (i + 1 == path.size() || member == nullptr || text_[member->value] != '{') {
        Json inner = value;
        for (size_t k = path.size() - 1; k > i; --k) inner = Json::MakeObject({{path[k], inner}});
        PutMember(object, member, path[i], inner);
        return Status::Ok();
      }
      JsonWalker walker(text_, member->value);
      ASSIGN_OR_RETURN(object, walker.ReadObject());
    }
  }

  Status Remove(const KeyPath& path) {
    ASSIGN_OR_RETURN(ObjectSpan object, Root());
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      const MemberSpan* member = FindLast(object, path[i]);
      if (member == nullptr || text_[member->value] != '{') return Status::Ok();
      JsonWalker walker(text_, member->value);
      ASSIGN_OR_RETURN(object, walker.ReadObject());
    }
    for (size_t i = object.members.size(); i-- > 0;) {
      if (object.members[i].key != path.back()) continue;
      EraseMember(object, i);
      object.members.erase(object.members.begin() + static_cast<ptrdiff_t>(i));
      return Remove(path);  // the key may occur twice
    }
    return Status::Ok();
  }

 private:
  Result<ObjectSpan> Root() const {
    JsonWalker walker(text_, text_.starts_with("\xEF\xBB\xBF") ? 3 : 0);
    walker.SkipSpace();
    return walker.ReadObject();
  }

  static const MemberSpan* FindLast(const ObjectSpan& object, const std::string& key) {
    const auto found = std::find_if(object.members.rbegin(), object.members.rend(),
                                    [&](const MemberSpan& m) { return m.key == key; });
    return found == object.members.rend() ? nullptr : &*found;
  }

  // The blanks before `at`, if only blanks precede `at` on its line.
  std::optional<std::string> IndentAt(size_t at) const {
    const size_t newline = text_.rfind('\n', at);
    if (newline == std::string::npos) return std::nullopt;
    const std::string blanks = text_.substr(newline + 1, at - newline - 1);
    if (blanks.find_first_not_of(" \t") != std::string::npos) return std::nullopt;
    return blanks;
  }

  // Takes the indentation of one level from a member that starts a line.
  void DetectIndent(const ObjectSpan& root) {
    multi_line_ = root.members.empty();
    if (root.members.empty()) return;
    // Prefers the second member: the first may follow the bracket on its line (`{ "first": 1,`).
    for (size_t i = root.members.size(); i-- > 0;) {
      const auto indent = IndentAt(root.members[i].begin);
      if (!indent) continue;
      multi_line_ = true;
      const bool is_uniform =
          indent->empty() || indent->find_first_not_of(indent->front()) == std::string::npos;
      indent_unit_ = is_uniform ? *indent : "  ";
      if (i <= 1) break;
    }
  }

  std::string ValueText(const Json& value, const std::string& indent) const {
    if (!multi_line_) return value.Serialize();
    if (value.is_object() && !value.members().empty()) {
      std::string out = "{";
      for (const auto& [key, inner] : value.members()) {
        out.append(out.size() > 1 ? "," : "").append(eol_).append(indent).append(indent_unit_);
        AppendJsonString(key, &out);
        out += ": " + ValueText(inner, indent + indent_unit_);
      }
      return out.append(eol_).append(indent).append("}");
    }
    return value.Serialize();
  }

  void PutMember(const ObjectSpan& object, const MemberSpan* member, const std::string& key,
                 const Json& value) {
    const std::string member_indent = MemberIndent(object);
    if (member != nullptr) {
      text_.replace(member->value, member->end - member->value, ValueText(value, member_indent));
      return;
    }
    std::string entry;
    AppendJsonString(key, &entry);
    entry += (multi_line_ ? ": " : ":") + ValueText(value, member_indent);
    if (!object.members.empty()) {
      const size_t end = object.members.back().end;
      const bool on_own_line = IndentAt(object.members.back().begin).has_value();
      text_.insert(end, on_own_line ? fmt::format(",{}{}{}", eol_, member_indent, entry)
                                    : (multi_line_ ? ", " : ",") + entry);
    } else if (multi_line_) {
      const std::string outer = member_indent.substr(0, member_indent.size() - indent_unit_.size());
      text_.replace(object.open + 1, object.close - object.open - 1,
                    fmt::format("{}{}{}{}{}", eol_, member_indent, entry, eol_, outer));
    } else {
      text_.insert(object.close, entry);
    }
  }

  std::string MemberIndent(const ObjectSpan& object) const {
    if (!object.members.empty()) {
      const auto indent = IndentAt(object.members.back().begin);
      if (indent) return *indent;
    }
    // No member starts a line: one level below the line on which the object opens.
    const size_t line = text_.rfind('\n', object.open);
    const size_t begin = line == std::string::npos ? 0 : line + 1;
    const size_t end = std::min(text_.find_first_not_of(" \t", begin), object.open);
    const std::string outer = line == std::string::npos ? "" : text_.substr(begin, end - begin);
    return outer + indent_unit_;
  }

  void EraseMember(const ObjectSpan& object, size_t index) {
    const MemberSpan& member = object.members[index];
    size_t begin = member.begin;
    size_t end = member.end;
    if (index > 0) {
      begin = object.members[index - 1].end;  // includes the preceding comma
    } else if (object.members.size() > 1) {
      end = object.members[1].begin;
    } else {
      begin = object.open + 1;
      end = object.close;
    }
    text_.erase(begin, end - begin);
  }

  std::string& text_;
  std::string_view eol_ = "\n";
  std::string indent_unit_ = "    ";
  bool multi_line_ = true;  // a new member gets its own line
};

Status AddCommentHint(const Status& status, std::string_view text) {
  const bool comment = text.find("//") != std::string_view::npos ||
                       text.find("/*") != std::string_view::npos ||
                       text.find('#') != std::string_view::npos;
  if (!comment) return status;
  return Error(status.code(), "{} (JSON has no comments)", status.message());
}

}  // namespace

Result<std::string> PatchJson(std::string_view text, const std::vector<TextEdit>& edits) {
  std::string_view body = text;
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
  std::string patched(text);
  if (Trim(body).empty()) {
    if (edits.empty()) return patched;
    patched = "{}\n";
    body = patched;
  }
  auto parsed = ParseJson(body);
  if (!parsed.ok()) return AddCommentHint(parsed.status(), body);
  Json expected = *std::move(parsed);
  if (!expected.is_object()) {
    return Error(Code::kInvalidArgument, "JSON: the document is {}, not an object",
                 KindName(expected.kind()));
  }
  for (const TextEdit& edit : edits) {
    TESSERA_CHECK(edit.kind == EditKind::kSet || edit.kind == EditKind::kRemove);
    Json after = expected;
    RETURN_IF_ERROR(ApplyEdit(edit, &after));
    if (after == expected) continue;
    expected = std::move(after);
    JsonPatch patch(&patched);
    RETURN_IF_ERROR(edit.kind == EditKind::kSet ? patch.Set(edit.path, edit.value)
                                                : patch.Remove(edit.path));
  }
  std::string_view result = patched;
  if (result.starts_with("\xEF\xBB\xBF")) result.remove_prefix(3);
  const auto reparsed = ParseJson(result);
  if (!reparsed.ok() || !(*reparsed == expected)) {
    return Error(Code::kInternal,
                 "JSON: the edits would change other content, too: edit the file by hand");
  }
  return patched;
}

}  // namespace tessera
