// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <yaml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/yaml.h"

namespace tessera {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The node tree that libyaml builds from a text, with the position of each node in the text. `text`
// must outlive it.
class YamlTree {
 public:
  explicit YamlTree(std::string_view text) : text_(text) {
    // libyaml's marks count characters, and leave out a byte order mark.
    size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    for (; at < text.size(); ++at) {
      if (!IsContinuation(text[at])) offsets_.push_back(at);
    }
    yaml_parser_t parser;
    TESSERA_CHECK(yaml_parser_initialize(&parser) == 1);
    yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
    loaded_ = yaml_parser_load(&parser, &document_) == 1;
    yaml_parser_delete(&parser);
  }
  ~YamlTree() {
    if (loaded_) yaml_document_delete(&document_);
  }
  YamlTree(const YamlTree&) = delete;
  YamlTree& operator=(const YamlTree&) = delete;

  // Null if the text does not parse, or is empty.
  const yaml_node_t* root() { return loaded_ ? yaml_document_get_root_node(&document_) : nullptr; }
  const yaml_node_t* Node(int id) { return yaml_document_get_node(&document_, id); }

  static bool IsMapping(const yaml_node_t* node) { return node->type == YAML_MAPPING_NODE; }
  static bool IsScalar(const yaml_node_t* node) { return node->type == YAML_SCALAR_NODE; }
  static bool IsFlow(const yaml_node_t* node) {
    return node->type == YAML_SEQUENCE_NODE
               ? node->data.sequence.style == YAML_FLOW_SEQUENCE_STYLE
               : IsMapping(node) && node->data.mapping.style == YAML_FLOW_MAPPING_STYLE;
  }
  static size_t PairsOf(const yaml_node_t* mapping) {
    return static_cast<size_t>(mapping->data.mapping.pairs.top - mapping->data.mapping.pairs.start);
  }
  const yaml_node_t* KeyAt(const yaml_node_t* mapping, size_t i) {
    return Node(mapping->data.mapping.pairs.start[i].key);
  }
  const yaml_node_t* ValueAt(const yaml_node_t* mapping, size_t i) {
    return Node(mapping->data.mapping.pairs.start[i].value);
  }
  // The position of the pair with this key.
  std::optional<size_t> Find(const yaml_node_t* mapping, std::string_view key) {
    for (size_t i = 0; i < PairsOf(mapping); ++i) {
      const auto& scalar = KeyAt(mapping, i)->data.scalar;
      if (std::string_view(reinterpret_cast<const char*>(scalar.value), scalar.length) == key) {
        return i;
      }
    }
    return std::nullopt;
  }
  // A member of a mapping or an item of a list; null if there is none.
  const yaml_node_t* Child(const yaml_node_t* node, const std::string& key) {
    if (IsMapping(node)) {
      const auto found = Find(node, key);
      return found ? ValueAt(node, *found) : nullptr;
    }
    if (node->type != YAML_SEQUENCE_NODE) return nullptr;
    const auto& items = node->data.sequence.items;
    const Result<int64_t> position = ParseInt(key);
    if (!position.ok() || *position < 0 || *position >= items.top - items.start) return nullptr;
    return Node(items.start[*position]);
  }

  size_t BeginOf(const yaml_node_t* node) const { return ByteAt(node->start_mark.index); }
  // The end of the node's text, without the white space that belongs to blocks.
  size_t EndOf(const yaml_node_t* node) {
    if (IsMapping(node) && !IsFlow(node) && PairsOf(node) > 0) {
      return EndOf(ValueAt(node, PairsOf(node) - 1));
    }
    if (node->type == YAML_SEQUENCE_NODE && !IsFlow(node)) {
      const auto& items = node->data.sequence.items;
      if (items.top > items.start) return EndOf(Node(*(items.top - 1)));
    }
    size_t end = ByteAt(node->end_mark.index);
    while (end > BeginOf(node) && IsBlank(text_[end - 1])) --end;
    return end;
  }
  size_t LineBegin(size_t at) const {
    const size_t before = at == 0 ? std::string_view::npos : text_.rfind('\n', at - 1);
    return before == std::string_view::npos ? 0 : before + 1;
  }
  size_t LineEnd(size_t at) const { return std::min(text_.find('\n', at), text_.size()); }
  std::string_view text() const { return text_; }

 private:
  size_t ByteAt(size_t character) const {
    return character < offsets_.size() ? offsets_[character] : text_.size();
  }

  const std::string_view text_;
  std::vector<size_t> offsets_;  // byte offset of each character
  yaml_document_t document_{};
  bool loaded_ = false;
};

// Replaces the bytes from `begin` to `end` by `text`. Splice{} changes nothing.
struct Splice {
  size_t begin = 0;
  size_t end = 0;
  std::string text;
};

// "key: value", with further lines for objects and lists. The last line has no line end.
std::string EntryText(const std::string& key, const Json& value) {
  std::string text = WriteYaml(Json::MakeObject({{key, value}}));
  text.pop_back();
  return text;
}

std::string Indented(std::string_view lines, size_t columns) {
  const std::string margin(columns, ' ');
  std::string text = margin;
  for (const char c : lines) {
    text.push_back(c);
    if (c == '\n') text += margin;
  }
  return text;
}

// The text of a scalar. Without quotes if `plain` is set and ParseYaml then reads the same value.
// `in_flow`: the scalar is inside brackets (flow style).
std::string ScalarText(const Json& value, bool plain, bool in_flow) {
  if (plain && value.is_string()) {
    const std::string& text = value.string_value();
    const auto read = ParseYaml(in_flow ? "{k: " + text + "}" : "k: " + text);
    if (read.ok() && *read == Json::MakeObject({{"k", value}})) return text;
  }
  return EntryText("k", value).substr(std::string_view("k: ").size());
}

bool IsScalarValue(const Json& value) { return !value.is_object() && !value.is_array(); }

std::optional<Splice> ReplaceValue(YamlTree& yaml, const yaml_node_t* node, bool in_flow,
                                   const Json& value) {
  if (!IsScalarValue(value)) return std::nullopt;
  if (!YamlTree::IsScalar(node) && !YamlTree::IsFlow(node)) return std::nullopt;
  const bool plain = YamlTree::IsScalar(node) && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  const size_t begin = yaml.BeginOf(node);
  const size_t end = yaml.EndOf(node);
  return Splice{begin, end, (begin == end ? " " : "") + ScalarText(value, plain, in_flow)};
}

std::optional<Splice> AddMember(YamlTree& yaml, const yaml_node_t* mapping, const std::string& key,
                                const Json& value) {
  const size_t pairs = YamlTree::PairsOf(mapping);
  if (YamlTree::IsFlow(mapping)) {
    const size_t at =
        pairs == 0 ? yaml.BeginOf(mapping) + 1 : yaml.EndOf(yaml.ValueAt(mapping, pairs - 1));
    // Inside brackets (flow style) JSON is valid YAML. It replaces the "0" of "key: 0".
    std::string text = EntryText(key, IsScalarValue(value) ? value : Json::Int(0));
    if (!IsScalarValue(value)) text.replace(text.size() - 1, 1, value.Serialize());
    return Splice{at, at, (pairs == 0 ? "" : ", ") + text};
  }
  if (pairs == 0) return std::nullopt;
  const size_t at = yaml.LineEnd(yaml.EndOf(mapping));
  const size_t column = yaml.KeyAt(mapping, 0)->start_mark.column;
  return Splice{at, at, "\n" + Indented(EntryText(key, value), column)};
}

std::optional<Splice> SetValue(YamlTree& yaml, const TextEdit& edit) {
  const yaml_node_t* node = yaml.root();
  bool in_flow = false;
  for (size_t i = 0; i < edit.path.size(); ++i) {
    in_flow = in_flow || YamlTree::IsFlow(node);
    const yaml_node_t* next = yaml.Child(node, edit.path[i]);
    if (next != nullptr) {
      node = next;
      continue;
    }
    if (!YamlTree::IsMapping(node)) return std::nullopt;
    Json value = edit.value;
    for (size_t j = edit.path.size() - 1; j > i; --j) {
      value = Json::MakeObject({{edit.path[j], std::move(value)}});
    }
    return AddMember(yaml, node, edit.path[i], value);
  }
  return ReplaceValue(yaml, node, in_flow, edit.value);
}

std::optional<Splice> RemoveMember(YamlTree& yaml, const TextEdit& edit) {
  const yaml_node_t* mapping = yaml.root();
  for (size_t i = 0; i + 1 < edit.path.size(); ++i) {
    mapping = yaml.Child(mapping, edit.path[i]);
    if (mapping == nullptr) return Splice{};
  }
  if (!YamlTree::IsMapping(mapping)) return std::nullopt;
  const auto found = yaml.Find(mapping, edit.path.back());
  if (!found) return Splice{};
  const size_t begin = yaml.BeginOf(yaml.KeyAt(mapping, *found));
  const size_t end = yaml.EndOf(yaml.ValueAt(mapping, *found));
  if (YamlTree::IsFlow(mapping)) {
    if (*found > 0) return Splice{yaml.EndOf(yaml.ValueAt(mapping, *found - 1)), end, ""};
    if (YamlTree::PairsOf(mapping) == 1) return Splice{begin, end, ""};
    return Splice{begin, yaml.BeginOf(yaml.KeyAt(mapping, 1)), ""};
  }
  // In "- key: value", removing the line would also remove the dash of the item's other keys.
  const size_t line = yaml.LineBegin(begin);
  if (!Trim(yaml.text().substr(line, begin - line)).empty()) return std::nullopt;
  return Splice{line, std::min(yaml.LineEnd(end) + 1, yaml.text().size()), ""};
}

// The text after the edit; nullopt if the layout cannot be kept. In rare layouts the text is wrong,
// so the caller verifies it.
std::optional<std::string> EditText(std::string text, const TextEdit& edit) {
  YamlTree yaml(text);
  if (yaml.root() == nullptr) return std::nullopt;
  const auto change = edit.kind == EditKind::kSet ? SetValue(yaml, edit) : RemoveMember(yaml, edit);
  if (!change || change->begin > change->end || change->end > text.size()) return std::nullopt;
  std::string result = text;
  return result.replace(change->begin, change->end - change->begin, change->text);
}

// Resolves the path up to its last list item, because ApplyEdit does not support list items.
Status ApplyYamlEdit(const TextEdit& edit, Json* document) {
  Json* base = document;
  size_t first = 0;
  Json* at = document;
  for (size_t i = 0; at != nullptr && i + 1 < edit.path.size(); ++i) {
    if (!at->is_array()) {
      at = at->Find(edit.path[i]);
      continue;
    }
    const Result<int64_t> item = ParseInt(edit.path[i]);
    if (!item.ok() || *item < 0 || *item >= static_cast<int64_t>(at->items().size())) {
      return Error(Code::kInvalidArgument, "the list has no item {}", edit.path[i]);
    }
    at = base = &at->items()[static_cast<size_t>(*item)];
    first = i + 1;
  }
  if (!base->is_object()) {
    return Error(Code::kInvalidArgument, "{} is not in a mapping", edit.path[first]);
  }
  return ApplyEdit(
      {edit.kind, KeyPath(edit.path.begin() + static_cast<ptrdiff_t>(first), edit.path.end()),
       edit.value},
      base);
}

}  // namespace

Result<std::string> PatchYaml(std::string_view text, const std::vector<TextEdit>& edits) {
  ASSIGN_OR_RETURN(Json document, ParseYaml(text));
  if (!document.is_object())
    return Error(Code::kInvalidArgument,
                 "the YAML document is not a mapping: begin it with \"key: value\"");
  std::optional<std::string> patched(text);
  for (const TextEdit& edit : edits) {
    const Json before = document;
    RETURN_IF_ERROR(ApplyYamlEdit(edit, &document));
    if (patched && document != before) patched = EditText(*std::move(patched), edit);
  }
  if (patched) {
    const auto read = ParseYaml(*patched);
    if (read.ok() && *read == document) return *std::move(patched);
  }
  return WriteYaml(document);
}

}  // namespace tessera
