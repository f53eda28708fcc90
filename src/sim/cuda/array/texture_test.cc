// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects of arrays and of linear memory.
#include <gtest/gtest.h>

#include <cstring>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class TextureTest : public OneGpuTest {
 protected:
  static Array Create(unsigned flags) {
    const Array3DDescriptor descriptor{
        .width = 64, .height = 64, .format = kFormatFloat, .channels = 4, .flags = flags};
    Array array = nullptr;
    EXPECT_OK(CU(*cuda_, cuArray3DCreate_v2)(&array, &descriptor));
    return array;
  }
  static Result CreateTexture(const ResourceDescriptor& resource, Texture* texture,
                              const ResourceViewDescriptor* view = nullptr) {
    const TextureDescriptor descriptor{.address_mode = {1, 1, 1}, .filter_mode = 1};
    return CU(*cuda_, cuTexObjectCreate)(texture, &resource, &descriptor, view);
  }
  static ResourceDescriptor ResourceOf(Array array) {
    ResourceDescriptor resource = {};
    resource.array = array;
    return resource;
  }
  static ResourceDescriptor Linear(DevicePtr pointer, uint64_t bytes) {
    ResourceDescriptor resource = {};
    resource.type = ResourceType::kLinear;
    resource.linear = {pointer, kFormatFloat, 4, bytes};
    return resource;
  }
};

TEST_F(TextureTest, ATextureReturnsItsDescriptors) {
  const Array array = Create(0);
  const uint64_t used = UsedBytes();
  const ResourceDescriptor resource = ResourceOf(array);
  const TextureDescriptor descriptor{
      .address_mode = {2, 1, 0}, .filter_mode = 1, .border_color = {1, 2, 3, 4}};
  ResourceViewDescriptor view = {};
  view.format = 0x1c, view.width = 64, view.height = 64;
  Texture texture = 0, plain = 0;
  ASSERT_OK(CU(*cuda_, cuTexObjectCreate)(&texture, &resource, &descriptor, &view));
  ASSERT_OK(CU(*cuda_, cuTexObjectCreate)(&plain, &resource, &descriptor, nullptr));
  EXPECT_NE(texture, 0u);
  EXPECT_NE(texture, plain);
  EXPECT_EQ(UsedBytes(), used) << "an object takes no memory";
  ResourceDescriptor resource_back = {};
  TextureDescriptor descriptor_back = {};
  ResourceViewDescriptor view_back = {};
  EXPECT_OK(CU(*cuda_, cuTexObjectGetResourceDesc)(&resource_back, texture));
  EXPECT_EQ(resource_back.array, array);
  EXPECT_OK(CU(*cuda_, cuTexObjectGetTextureDesc)(&descriptor_back, texture));
  EXPECT_EQ(memcmp(&descriptor, &descriptor_back, sizeof(descriptor)), 0);
  EXPECT_OK(CU(*cuda_, cuTexObjectGetResourceViewDesc)(&view_back, texture));
  EXPECT_EQ(view_back.format, 0x1cu);
  EXPECT_EQ(CU(*cuda_, cuTexObjectGetResourceViewDesc)(&view_back, plain), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuTexObjectDestroy)(texture));
  EXPECT_EQ(CU(*cuda_, cuTexObjectDestroy)(texture), Result::kInvalidValue) << "twice";
  EXPECT_OK(CU(*cuda_, cuTexObjectDestroy)(plain));
  EXPECT_OK(CU(*cuda_, cuArrayDestroy)(array));
}

TEST_F(TextureTest, LinearMemoryMustBeAllocatedAndAligned) {
  DevicePtr pointer = 0;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&pointer, 1 << 20));
  Texture texture = 0;
  EXPECT_OK(CreateTexture(Linear(pointer, 1 << 20), &texture));
  EXPECT_OK(CU(*cuda_, cuTexObjectDestroy)(texture));
  EXPECT_EQ(CreateTexture(Linear(pointer + 16, 512), &texture), Result::kInvalidValue);
  EXPECT_EQ(CreateTexture(Linear(pointer, (1 << 20) + 1), &texture), Result::kInvalidValue);
  const ResourceViewDescriptor view = {};
  EXPECT_EQ(CreateTexture(Linear(pointer, 512), &texture, &view), Result::kInvalidValue);

  ResourceDescriptor pitched = {};
  pitched.type = ResourceType::kPitched;
  pitched.pitched = {pointer, kFormatUint8, 1, 1000, 1024, 1024};
  EXPECT_OK(CreateTexture(pitched, &texture));
  EXPECT_OK(CU(*cuda_, cuTexObjectDestroy)(texture));
  pitched.pitched.height = 1025;
  EXPECT_EQ(CreateTexture(pitched, &texture), Result::kInvalidValue)
      << "beyond the end of the memory";
  pitched.pitched = {pointer, kFormatUint8, 1, 1000, 1, 1008};
  EXPECT_EQ(CreateTexture(pitched, &texture), Result::kInvalidValue) << "pitch";
  pitched.pitched = {pointer, kFormatUint8, 1, 1000, 17, size_t(1) << 60};
  EXPECT_EQ(CreateTexture(pitched, &texture), Result::kInvalidValue) << "the size overflows";
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
}

TEST_F(TextureTest, ASurfaceNeedsAnArrayThatAllowsIt) {
  const Array array = Create(0), writable = Create(kArraySurface);
  ResourceDescriptor resource = ResourceOf(array);
  Surface surface = 0;
  Texture texture = 0;
  EXPECT_EQ(CU(*cuda_, cuSurfObjectCreate)(&surface, &resource), Result::kInvalidValue);
  resource = ResourceOf(writable);
  ASSERT_OK(CU(*cuda_, cuSurfObjectCreate)(&surface, &resource));
  ASSERT_OK(CreateTexture(resource, &texture));
  EXPECT_EQ(CU(*cuda_, cuTexObjectDestroy)(surface), Result::kInvalidValue) << "no texture";
  EXPECT_EQ(CU(*cuda_, cuSurfObjectDestroy)(texture), Result::kInvalidValue) << "no surface";
  ResourceDescriptor back = {};
  EXPECT_OK(CU(*cuda_, cuSurfObjectGetResourceDesc)(&back, surface));
  EXPECT_EQ(back.array, writable);
  EXPECT_OK(CU(*cuda_, cuSurfObjectDestroy)(surface));
  EXPECT_OK(CU(*cuda_, cuTexObjectDestroy)(texture));
  for (Array created : {array, writable}) EXPECT_OK(CU(*cuda_, cuArrayDestroy)(created));
  EXPECT_EQ(CreateTexture(ResourceOf(array), &texture), Result::kInvalidHandle)
      << "the array is destroyed";
}

TEST_F(TextureTest, TheEndOfAContextEndsItsTextures) {
  Context context = nullptr;
  ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&context, 0, 0));
  Texture texture = 0;
  ASSERT_OK(CreateTexture(ResourceOf(Create(0)), &texture));
  ASSERT_OK(CU(*cuda_, cuCtxDestroy_v2)(context));
  EXPECT_EQ(CU(*cuda_, cuTexObjectDestroy)(texture), Result::kInvalidValue);
}

}  // namespace
}  // namespace tessera::cuda
