// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/log_tree.h"

#include <fmt/format.h>

namespace tessera::smi {

LogNode& LogNode::Add(std::string_view label, std::string_view tag, std::string value) {
  children.push_back({std::string(label), std::string(tag), std::move(value), false, {}});
  return *this;
}

LogNode& LogNode::Open(std::string_view label, std::string_view tag) {
  children.push_back({std::string(label), std::string(tag), "", true, {}});
  return children.back();
}

void AppendText(const LogNode& node, int depth, std::string* out) {
  if (node.label.empty()) return;
  const std::string head = std::string(static_cast<size_t>(depth) * 4, ' ') + node.label;
  if (!node.is_section) {
    *out += fmt::format("{:<42}: {}\n", head, node.value);
    return;
  }
  *out += head + '\n';
  for (const LogNode& child : node.children) AppendText(child, depth + 1, out);
}

void AppendXml(const LogNode& node, int depth, std::string* out) {
  if (node.tag.empty()) return;
  const std::string indent(static_cast<size_t>(depth), '\t');
  if (!node.is_section) {
    *out += fmt::format("{}<{}>{}</{}>\n", indent, node.tag, EscapeXml(node.value), node.tag);
    return;
  }
  *out += fmt::format("{}<{}>\n", indent, node.tag);
  for (const LogNode& child : node.children) AppendXml(child, depth + 1, out);
  *out += fmt::format("{}</{}>\n", indent, node.tag);
}

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace tessera::smi
