// SPDX-License-Identifier: Apache-2.0
// Variables of modules and libraries.
#include <array>
#include <cstring>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

constexpr char kVariables[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".const .align 4 .f32 factors[3] = {0f3F800000, 0fC0200000};\n"
    ".visible .global .align 16 .b8 large[3145728];\n"
    ".visible .entry use() { ret; }\n";

class ModuleTest : public OneGpuTest {
 protected:
  template <typename T>
  static T Read(DevicePtr pointer) {
    T value{};
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, pointer, sizeof(value)));
    return value;
  }
  static Module Load() {
    Module module = nullptr;
    EXPECT_OK(CU(*cuda_, cuModuleLoadData)(&module, kVariables));
    return module;
  }
};

TEST_F(ModuleTest, VariablesBeginWithTheirValuesAndCanBeWritten) {
  const Module module = Load();
  DevicePtr counter = 0, factors = 0;
  size_t bytes = 0;
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&counter, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(Read<int>(counter), 7);
  ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(counter, 8, 1));
  EXPECT_EQ(Read<int>(counter), 8);
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&factors, &bytes, module, "factors"));
  EXPECT_EQ(bytes, 12u);
  EXPECT_EQ((Read<std::array<float, 3>>(factors)), (std::array<float, 3>{1.0f, -2.5f, 0.0f}));
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
}

TEST_F(ModuleTest, EitherResultPointerOfALookupMayBeNull) {
  const Module module = Load();
  DevicePtr pointer = 0;
  size_t bytes = 0;
  EXPECT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(nullptr, &bytes, module, "large"));
  EXPECT_EQ(bytes, 3 * kMiB);
  EXPECT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&pointer, nullptr, module, "large"));
  EXPECT_EQ(pointer % 16, 0u);
  EXPECT_EQ(CU(*cuda_, cuModuleGetGlobal_v2)(&pointer, nullptr, module, "use"), Result::kNotFound);
  EXPECT_EQ(CU(*cuda_, cuModuleGetGlobal_v2)(&pointer, nullptr, module, nullptr),
            Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuModuleGetGlobal_v2)(&pointer, nullptr, nullptr, "large"),
            Result::kInvalidHandle);
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
}

TEST_F(ModuleTest, MemoryOfVariablesIsFreedOnlyWithTheModule) {
  const Module module = Load();
  EXPECT_EQ(UsedBytes(), 4 * kMiB) << "whole blocks";
  DevicePtr counter = 0;
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&counter, nullptr, module, "counter"));
  EXPECT_EQ(CU(*cuda_, cuMemFree_v2)(counter), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(ModuleTest, AModuleWithoutRoomForItsVariablesIsRefused) {
  DevicePtr all = 0;
  Module module = nullptr;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&all, 898 * kMiB));
  EXPECT_EQ(CU(*cuda_, cuModuleLoadData)(&module, kVariables), Result::kOutOfMemory);
  Library library = nullptr;
  DevicePtr counter = 0;
  ASSERT_OK(
      CU(*cuda_, cuLibraryLoadData)(&library, kVariables, nullptr, nullptr, 0, nullptr, nullptr, 0))
      << "a library allocates in the contexts that use it";
  EXPECT_EQ(CU(*cuda_, cuLibraryGetGlobal)(&counter, nullptr, library, "counter"),
            Result::kOutOfMemory);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(all));
  EXPECT_OK(CU(*cuda_, cuLibraryGetGlobal)(&counter, nullptr, library, "counter"));
  EXPECT_EQ(Read<int>(counter), 7);
  EXPECT_OK(CU(*cuda_, cuLibraryUnload)(library));
}

TEST_F(ModuleTest, VariablesWhoseSizesOverflowAreRefused) {
  constexpr char kHuge[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".global .b8 huge[0xffffffffffffffff];\n.global .b8 small[2];\n";
  Module module = nullptr;
  EXPECT_EQ(CU(*cuda_, cuModuleLoadData)(&module, kHuge), Result::kOutOfMemory);
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(ModuleTest, EachModuleHasItsOwnVariables) {
  const Module one = Load(), other = Load();
  DevicePtr first = 0, second = 0;
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&first, nullptr, one, "counter"));
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&second, nullptr, other, "counter"));
  ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(first, 1, 1));
  EXPECT_EQ(Read<int>(second), 7);
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(one));
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(other));
}

TEST_F(ModuleTest, ReportsParametersOfKernels) {
  Library library = nullptr;
  Kernel kernel = nullptr, listed[3] = {};
  constexpr char kKernels[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".entry one(.param .u8 a, .param .align 8 .b8 b[24]) { ret; }\n.entry two() { ret; }\n";
  ASSERT_OK(
      CU(*cuda_, cuLibraryLoadData)(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_OK(CU(*cuda_, cuLibraryGetKernel)(&kernel, library, "one"));
  size_t offset = 0, size = 0;
  EXPECT_OK(CU(*cuda_, cuKernelGetParamInfo)(kernel, 1, &offset, &size));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 24u);
  EXPECT_EQ(CU(*cuda_, cuKernelGetParamInfo)(kernel, 2, &offset, &size), Result::kInvalidValue);
  Function function = nullptr;
  ASSERT_OK(CU(*cuda_, cuKernelGetFunction)(&function, kernel));
  EXPECT_OK(CU(*cuda_, cuFuncGetParamInfo)(function, 0, &offset, nullptr));
  EXPECT_EQ(offset, 0u);
  EXPECT_OK(CU(*cuda_, cuLibraryEnumerateKernels)(listed, 3, library));
  EXPECT_EQ(listed[0], kernel);
  const char* name = nullptr;
  EXPECT_OK(CU(*cuda_, cuKernelGetName)(&name, listed[1]));
  EXPECT_STREQ(name, "two");
  EXPECT_EQ(listed[2], nullptr);
  Library of_kernel = nullptr;
  EXPECT_OK(CU(*cuda_, cuKernelGetLibrary)(&of_kernel, kernel));
  EXPECT_EQ(of_kernel, library);
  EXPECT_OK(CU(*cuda_, cuLibraryUnload)(library));
}

TEST_F(ModuleTest, ALaunchMayUseTheSharedMemoryAllowedForTheKernel) {
  Library library = nullptr;
  Kernel kernel = nullptr;
  ASSERT_OK(CU(*cuda_, cuLibraryLoadData)(&library, kVariables, nullptr, nullptr, 0, nullptr,
                                          nullptr, 0));
  ASSERT_OK(CU(*cuda_, cuLibraryGetKernel)(&kernel, library, "use"));
  const auto launch = [&] {
    return CU(*cuda_, cuLaunchKernel)(reinterpret_cast<Function>(kernel), 1, 1, 1, 1, 1, 1, 100'000,
                                      nullptr, nullptr, nullptr);
  };
  constexpr int kMaxDynamicShared = 8;
  EXPECT_EQ(launch(), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuKernelSetAttribute)(kMaxDynamicShared, 100'000, kernel, 0));
  int value = 0;
  EXPECT_OK(CU(*cuda_, cuKernelGetAttribute)(&value, kMaxDynamicShared, kernel, 0));
  EXPECT_EQ(value, 100'000);
  EXPECT_OK(launch());
  EXPECT_EQ(CU(*cuda_, cuKernelSetAttribute)(kMaxDynamicShared, 1 << 20, kernel, 0),
            Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuLibraryUnload)(library));
}

constexpr int kPtxInput = 1, kFatBinaryInput = 2;

TEST_F(ModuleTest, PiecesOfPtxAreLinkedIntoOneModule) {
  constexpr char kOther[] =
      ".version 7.0\n.target sm_70\n.global .u32 other = 5;\n.entry more() { ret; }\n";
  LinkState link = nullptr;
  ASSERT_OK(CU(*cuda_, cuLinkCreate_v2)(0, nullptr, nullptr, &link));
  const auto add = [&](const char* ptx) {
    return CU(*cuda_, cuLinkAddData_v2)(link, kPtxInput, const_cast<char*>(ptx), strlen(ptx) + 1,
                                        "piece", 0, nullptr, nullptr);
  };
  void* image = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(CU(*cuda_, cuLinkComplete)(link, &image, &bytes), Result::kInvalidValue) << "no piece";
  ASSERT_OK(add(kVariables));
  ASSERT_OK(add(kOther));
  EXPECT_EQ(add(".version 7.0\n.target sm_90\n"), Result::kInvalidPtx);
  ASSERT_OK(CU(*cuda_, cuLinkComplete)(link, &image, &bytes));
  Module module = nullptr;
  ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, image));
  EXPECT_OK(CU(*cuda_, cuLinkDestroy)(link));
  EXPECT_EQ(CU(*cuda_, cuLinkDestroy)(link), Result::kInvalidHandle);
  Function use = nullptr, more = nullptr;
  DevicePtr other = 0;
  EXPECT_OK(CU(*cuda_, cuModuleGetFunction)(&use, module, "use"));
  EXPECT_OK(CU(*cuda_, cuModuleGetFunction)(&more, module, "more"));
  ASSERT_OK(CU(*cuda_, cuModuleGetGlobal_v2)(&other, nullptr, module, "other"));
  EXPECT_EQ(Read<int>(other), 5);
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
}

TEST_F(ModuleTest, AnImageLinkedFromOtherPiecesAcceptsEveryName) {
  LinkState link = nullptr;
  ASSERT_OK(CU(*cuda_, cuLinkCreate_v2)(0, nullptr, nullptr, &link));
  char piece[] = "a fat binary";
  ASSERT_OK(CU(*cuda_, cuLinkAddData_v2)(link, kPtxInput, const_cast<char*>(kVariables),
                                         sizeof(kVariables), "", 0, nullptr, nullptr));
  ASSERT_OK(CU(*cuda_, cuLinkAddData_v2)(link, kFatBinaryInput, piece, sizeof(piece), "", 0,
                                         nullptr, nullptr));
  EXPECT_EQ(CU(*cuda_, cuLinkAddFile_v2)(link, kPtxInput, "/missing", 0, nullptr, nullptr),
            Result::kFileNotFound);
  void* image = nullptr;
  ASSERT_OK(CU(*cuda_, cuLinkComplete)(link, &image, nullptr));
  Module module = nullptr;
  Function function = nullptr;
  ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, image));
  EXPECT_OK(CU(*cuda_, cuModuleGetFunction)(&function, module, "any"));
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
  EXPECT_OK(CU(*cuda_, cuLinkDestroy)(link));
}

TEST_F(ModuleTest, AFunctionKeepsItsParametersForTheOldLaunchFunctions) {
  constexpr char kFill[] =
      ".version 7.0\n.target sm_70\n"
      ".entry fill(.param .u64 out, .param .f32 value, .param .u32 n) { ret; }\n";
  Module module = nullptr;
  Function fill = nullptr;
  DevicePtr out = 0;
  ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, kFill));
  ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&fill, module, "fill"));
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&out, 16));
  EXPECT_OK(CU(*cuda_, cuFuncSetBlockShape)(fill, 2, 1, 1));
  EXPECT_OK(CU(*cuda_, cuFuncSetSharedSize)(fill, 64));
  EXPECT_OK(CU(*cuda_, cuParamSetv)(fill, 0, &out, sizeof(out)));
  EXPECT_OK(CU(*cuda_, cuParamSetf)(fill, 8, 1.5f));
  EXPECT_OK(CU(*cuda_, cuParamSeti)(fill, 12, 4));
  EXPECT_OK(CU(*cuda_, cuParamSetSize)(fill, 16));
  EXPECT_OK(CU(*cuda_, cuMemsetD32_v2)(out, 0, 4));
  EXPECT_OK(CU(*cuda_, cuLaunch)(fill));
  EXPECT_EQ((Read<std::array<float, 4>>(out)), (std::array<float, 4>{1.5f, 1.5f, 0, 0}))
      << "one block of two threads";
  EXPECT_OK(CU(*cuda_, cuParamSetf)(fill, 8, 2.5f));
  EXPECT_OK(CU(*cuda_, cuLaunchGrid)(fill, 2, 1));
  EXPECT_EQ((Read<std::array<float, 4>>(out)), (std::array<float, 4>{2.5f, 2.5f, 2.5f, 2.5f}));
  EXPECT_EQ(CU(*cuda_, cuLaunchGridAsync)(fill, 0, 1, nullptr), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuFuncSetBlockShape)(fill, 0, 1, 1), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuParamSeti)(fill, 1 << 20, 4), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(out));
  EXPECT_OK(CU(*cuda_, cuModuleUnload)(module));
}

TEST_F(ModuleTest, TheLastDetachDestroysAContext) {
  Context created = nullptr, attached = nullptr, current = nullptr;
  EXPECT_EQ(CU(*cuda_, cuCtxAttach)(nullptr, 0), Result::kInvalidValue);
  ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&created, 0, 0));
  ASSERT_OK(CU(*cuda_, cuCtxAttach)(&attached, 0));
  EXPECT_EQ(attached, created);
  EXPECT_OK(CU(*cuda_, cuCtxDetach)(created));
  EXPECT_OK(CU(*cuda_, cuCtxGetCurrent)(&current));
  EXPECT_EQ(current, created);
  EXPECT_OK(CU(*cuda_, cuCtxDetach)(created));
  EXPECT_OK(CU(*cuda_, cuCtxGetCurrent)(&current));
  EXPECT_NE(current, created);
  EXPECT_EQ(CU(*cuda_, cuCtxDetach)(created), Result::kInvalidContext);
  EXPECT_EQ(CU(*cuda_, cuCtxDetach)(current), Result::kInvalidContext)
      << "a primary context cannot be detached";
}

}  // namespace
}  // namespace tessera::cuda
