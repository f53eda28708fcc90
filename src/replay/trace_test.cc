// SPDX-License-Identifier: Apache-2.0
#include "src/replay/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::replay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kPodColumns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n";
constexpr std::string_view kNodeColumns = "sn,cpu_milli,memory_mib,gpu,model\n";

std::string PodError(std::string_view row) {
  const auto list = ParsePods(std::string(kPodColumns) + std::string(row), "pods.csv");
  return list.ok() ? "no error" : list.status().message();
}

std::string NodeError(std::string_view rows) {
  const auto nodes = ParseNodes(std::string(kNodeColumns) + std::string(rows), "nodes.csv");
  return nodes.ok() ? "no error" : nodes.status().message();
}

TEST(TraceTest, ReadsNodesWithAndWithoutGpus) {
  const auto nodes = ParseNodes(
      std::string(kNodeColumns) + "a,64000,262144,2,P100\nb,8000,1024,0,\n", "nodes.csv");
  ASSERT_TRUE(nodes.ok()) << nodes.status().ToString();
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ((*nodes)[0].name, "a");
  EXPECT_EQ((*nodes)[0].cpu_milli, 64000);
  EXPECT_EQ((*nodes)[0].memory, GiB(256));
  EXPECT_EQ((*nodes)[0].gpus, 2);
  EXPECT_EQ((*nodes)[0].model, "P100");
  EXPECT_EQ((*nodes)[1].gpus, 0);
  EXPECT_EQ(CapacityOf(*nodes), 2000);
}

TEST(TraceTest, ReadsPodsOfFiveColumns) {
  const auto list = ParsePods(std::string(kPodColumns) + "p,4000,1024,1,460\n", "pods.csv");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_FALSE(list->has_times);
  ASSERT_EQ(list->pods.size(), 1u);
  EXPECT_EQ(list->pods[0].per_gpu, MilliGpu(460));
  EXPECT_EQ(list->pods[0].milli(), 460);
  EXPECT_TRUE(list->pods[0].models.empty());
}

TEST(TraceTest, FindsColumnsByNameInAnyOrder) {
  const auto list = ParsePods(
      "deletion_time,gpu_spec,qos,gpu_milli,num_gpu,memory_mib,cpu_milli,creation_time,name\n"
      "90,T4|P100,LS,1000,8,5,3,20,p\n",
      "pods.csv");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  EXPECT_TRUE(list->has_times);
  const TracePod& pod = list->pods[0];
  EXPECT_EQ(pod.name, "p");
  EXPECT_EQ(pod.cpu_milli, 3);
  EXPECT_EQ(pod.gpus, 8);
  EXPECT_THAT(pod.models, ElementsAre("T4", "P100"));
  EXPECT_EQ(pod.created, 20);
  EXPECT_EQ(pod.deleted, 90);
}

TEST(TraceTest, ReadsFilesOfSpreadsheets) {
  const auto nodes =
      ParseNodes("\xEF\xBB\xBFsn,cpu_milli,memory_mib,gpu,model\r\na, 1 ,2,1,T4\r\n\r\n", "n.csv");
  ASSERT_TRUE(nodes.ok()) << nodes.status().ToString();
  EXPECT_EQ((*nodes)[0].cpu_milli, 1);
  EXPECT_EQ((*nodes)[0].model, "T4");
}

TEST(TraceTest, ReadsQuotedFields) {
  const auto list = ParsePods(
      "\"name\",cpu_milli,memory_mib,num_gpu,\"gpu_milli\"\r\n"
      "\"a, \"\"b\"\"\nc\" ,\"1\",2,\"0\",0\r\n"
      "\"\"\"\",1,2,0,\"0\"",
      "pods.csv");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  ASSERT_EQ(list->pods.size(), 2u);
  EXPECT_EQ(list->pods[0].name, "a, \"b\"\nc");
  EXPECT_EQ(list->pods[0].cpu_milli, 1);
  EXPECT_EQ(list->pods[1].name, "\"");
}

TEST(TraceTest, CountsTheLinesInsideQuotes) {
  EXPECT_EQ(PodError("\"a\nb\",1,1,0,0\nq,-5,1,0,0\n"),
            "pods.csv:4: cpu_milli: \"-5\" is negative");
  EXPECT_EQ(PodError("\"a\nb\",-1,1,0,0\n"), "pods.csv:2: cpu_milli: \"-1\" is negative");
}

TEST(TraceTest, NamesTheInvalidQuote) {
  EXPECT_EQ(PodError("p,1,1,0,0\n\"q,1,1,0,0\nr,1,1,0,0\n"),
            "pods.csv:3: field 1: its quote is not closed");
  EXPECT_EQ(PodError("p,\"1\"2,1,0,0\n"), "pods.csv:2: field 2: \"2\" after its closing quote");
  EXPECT_EQ(
      PodError("p\"q\",1,1,0,0\n"),
      "pods.csv:2: field 1: a quote inside \"p\\\"q\\\"\": quote the whole field, and double the "
      "quotes in it");
  EXPECT_EQ(PodError("p,1,\" 1\",0,0\n"), "pods.csv:2: memory_mib: \" 1\" is not a number");
}

TEST(TraceTest, NamesFileLineColumnAndReasonOfAWrongNumber) {
  EXPECT_EQ(PodError("p,1,1,0,0\nq,-5,1,0,0\n"), "pods.csv:3: cpu_milli: \"-5\" is negative");
  EXPECT_EQ(PodError("p,1,1,1,0.5\n"), "pods.csv:2: gpu_milli: \"0.5\" is not a whole number");
  EXPECT_EQ(PodError("p,1,,0,0\n"), "pods.csv:2: memory_mib: a number is missing");
  EXPECT_EQ(PodError("p,1,1073741825,0,0\n"),
            "pods.csv:2: memory_mib: \"1073741825\" is not in 0 … 1073741824");
  EXPECT_EQ(PodError("p,1,x,0,0\n"), "pods.csv:2: memory_mib: \"x\" is not a number");
  EXPECT_EQ(PodError("p,1,1,99999999999999999999999,1000\n"),
            "pods.csv:2: num_gpu: \"99999999999999999999999\" is not in 0 … 1000000");
  EXPECT_EQ(PodError("p,1,1,1,1001\n"), "pods.csv:2: gpu_milli: \"1001\" is not in 0 … 1000");
  EXPECT_EQ(NodeError("a,1,1,65,T4\n"), "nodes.csv:2: gpu: \"65\" is not in 0 … 64");
}

TEST(TraceTest, CountsEmptyLinesInLineNumbers) {
  EXPECT_THAT(PodError("\n\np,1,1,0,-1\n"), HasSubstr("pods.csv:4: gpu_milli"));
}

TEST(TraceTest, RejectsGpusWithoutAShareAndAShareWithoutGpus) {
  EXPECT_EQ(PodError("p,1,1,2,0\n"),
            "pods.csv:2: gpu_milli: 0 thousandths for 2 GPUs: both must be 0, or neither");
  EXPECT_EQ(PodError("p,1,1,0,500\n"),
            "pods.csv:2: gpu_milli: 500 thousandths for 0 GPUs: both must be 0, or neither");
}

TEST(TraceTest, AcceptsAPodLargerThanAnyNode) {
  EXPECT_EQ(PodError("p,1000000,1,1000,1000\n"), "no error");
}

TEST(TraceTest, RejectsAPodThatEndsBeforeItBegins) {
  const auto list = ParsePods(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np,1,1,0,0,9,8\n",
      "pods.csv");
  EXPECT_EQ(list.status().message(), "pods.csv:2: deletion_time: 8 is before its creation at 9");
}

TEST(TraceTest, NamesTheLineWithTooManyModels) {
  std::string text = "sn,cpu_milli,memory_mib,gpu,model\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("n{},1,1,1,M{}\n", i, i);
  EXPECT_EQ(ParseNodes(text, "n.csv").status().message(),
            "n.csv:257: model: more than 255 models of GPUs in one list");
}

TEST(TraceTest, RejectsDuplicateNodeNames) {
  EXPECT_EQ(NodeError("a,1,1,0,\na,1,1,0,\n"), "nodes.csv:3: sn: duplicate node a");
}

TEST(TraceTest, RejectsRowsThatDoNotMatchTheFirstLine) {
  EXPECT_EQ(PodError("p,1,1,0\n"), "pods.csv:2: 4 fields where the first line names 5 columns");
}

TEST(TraceTest, NamesAColumnThatIsMissing) {
  EXPECT_EQ(
      ParsePods("name,cpu_milli,memory_mib,num_gpu\np,1,1,0\n", "pods.csv").status().message(),
      "pods.csv:1: column gpu_milli is missing; the file has \"name\", \"cpu_milli\", "
      "\"memory_mib\", \"num_gpu\"");
  EXPECT_EQ(ParseNodes("sn,sn\na,b\n", "n.csv").status().message(),
            "n.csv:1: duplicate column \"sn\"");
}

TEST(TraceTest, RejectsAListWithoutRows) {
  EXPECT_THAT(ParsePods("", "p.csv").status().message(), HasSubstr("no rows"));
  EXPECT_THAT(ParseNodes(kNodeColumns, "n.csv").status().message(),
              AllOf(HasSubstr("n.csv:1"), HasSubstr("no rows")));
}

TEST(TraceTest, NamesAFileThatIsMissing) {
  EXPECT_EQ(ReadNodes("/nowhere/nodes.csv").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tessera::replay
