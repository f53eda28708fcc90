// SPDX-License-Identifier: Apache-2.0
// The tree of -q: a node has the name for text and the tag for XML, so that both agree.
// GpuSections in gpu_log.h builds the tree.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::smi {

struct LogNode {
  std::string label;  // "FB Memory Usage"; "" leaves the node out of the text
  std::string tag;    // "fb_memory_usage"; "" leaves the node out of the XML
  std::string value;  // set in a leaf
  bool is_section = false;
  std::vector<LogNode> children;

  // Adds a leaf and returns this node, to chain calls.
  LogNode& Add(std::string_view label, std::string_view tag, std::string value);
  // Adds a section and returns it. It is valid until the next Add on this node.
  LogNode& Open(std::string_view label, std::string_view tag);
};

// "    Product Name                          : NVIDIA H200\n", children indented by four more.
void AppendText(const LogNode& node, int depth, std::string* out);
// "\t<product_name>NVIDIA H200</product_name>\n"
void AppendXml(const LogNode& node, int depth, std::string* out);
std::string EscapeXml(std::string_view text);

}  // namespace tessera::smi
