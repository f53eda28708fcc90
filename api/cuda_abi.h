// SPDX-License-Identifier: Apache-2.0
// The C ABI of the CUDA driver (libcuda.so.1) on x86-64 Linux, in our own declarations: handles,
// result codes, structs and signatures. Tessera simulates these functions (src/sim), replaces them
// (src/limiter) or calls them (samples). Not for: loading the library, nor for any behavior.
//
// Rules of the ABI: every function returns a Result as int. Optional out-parameters may be null.
// A function with a new signature gets a new symbol (_v2, _v3). The names here are symbols, not the
// macro names of the toolkit's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::cuda {

enum class Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidSource = 300,
  kFileNotFound = 301,
  kSharedObjectSymbolNotFound = 302,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kPrimaryContextActive = 708,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailed = 719,
  kCooperativeLaunchTooLarge = 720,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureMerge = 902,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kGraphExecUpdateFailure = 910,
  kUnknown = 999,
};

using Device = int;
using DevicePtr = std::uint64_t;
// Addresses in functions of CUDA 3.1 and before.
using DevicePtrV1 = std::uint32_t;

struct ContextTag;
struct ModuleTag;
struct FunctionTag;
struct LibraryTag;
struct KernelTag;
struct StreamTag;
struct EventTag;
struct MemPoolTag;
struct ArrayTag;
struct MipmappedArrayTag;
struct GraphTag;
struct GraphNodeTag;
struct GraphExecTag;
struct UserObjectTag;
struct LinkStateTag;
using Context = ContextTag*;
using Module = ModuleTag*;
using Function = FunctionTag*;
using Library = LibraryTag*;
using Kernel = KernelTag*;
using Stream = StreamTag*;
using Event = EventTag*;
using MemPool = MemPoolTag*;
using Array = ArrayTag*;
using MipmappedArray = MipmappedArrayTag*;
using Graph = GraphTag*;
using GraphNode = GraphNodeTag*;
using GraphExec = GraphExecTag*;
using UserObject = UserObjectTag*;
using LinkState = LinkStateTag*;

// Stream handles that are not pointers.
inline constexpr std::uintptr_t kStreamLegacy = 1;
inline constexpr std::uintptr_t kStreamPerThread = 2;

// CUlimit: bytes of a thread's stack, of the buffer of printf, of the heap of malloc in kernels.
inline constexpr int kLimitStack = 0, kLimitPrintfFifo = 1, kLimitMallocHeap = 2;
// CUevent_flags
inline constexpr unsigned kEventNoTiming = 2, kEventInterprocess = 4;
// CUdevice_attribute
inline constexpr int kMultiprocessorCount = 16, kMaxThreadsPerMultiprocessor = 39;

struct Uuid {
  char bytes[16];
};
static_assert(sizeof(Uuid) == 16);

// CUdevprop: the result of cuDeviceGetProperties, which is deprecated.
struct DeviceProperties {
  int max_threads_per_block, max_threads_dim[3], max_grid_size[3], shared_mem_per_block,
      total_constant_memory, simd_width, mem_pitch, regs_per_block, clock_rate, texture_align;
};

struct LaunchAttribute {
  unsigned id;
  char pad[4];
  char value[64];
};
static_assert(sizeof(LaunchAttribute) == 72);

// The meaning of the bytes depends on the id of the attribute.
struct StreamAttribute {
  char value[64];
};
// CUstreamAttrID; the value is an int
inline constexpr int kStreamPriority = 8;
// CUlaunchAttributeID; the value is the blocks of a cluster along x, y and z
inline constexpr unsigned kLaunchClusterDimension = 4;

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

// CUDA_LAUNCH_PARAMS: one launch of cuLaunchCooperativeKernelMultiDevice.
struct DeviceLaunch {
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  void** parameters;
};
static_assert(sizeof(DeviceLaunch) == 56);
// Flags of cuLaunchCooperativeKernelMultiDevice. kNoSyncBefore: a kernel waits only for earlier
// work of its own stream. kNoSyncAfter: later work of a stream waits only for the kernel of that
// stream.
inline constexpr unsigned kNoSyncBefore = 1, kNoSyncAfter = 2;

enum class MemoryType : unsigned { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

struct Memcpy2D {
  std::size_t src_x, src_y;
  MemoryType src_type;
  const void* src_host;
  DevicePtr src_device;
  Array src_array;
  std::size_t src_pitch;
  std::size_t dst_x, dst_y;
  MemoryType dst_type;
  void* dst_host;
  DevicePtr dst_device;
  Array dst_array;
  std::size_t dst_pitch;
  std::size_t width, height;
};
static_assert(sizeof(Memcpy2D) == 128);

// src_height and dst_height are rows of a plane. src_level and dst_level (mipmap levels) must be 0.
// In copies between devices, src_reserved and dst_reserved are the contexts.
struct Memcpy3D {
  std::size_t src_x, src_y, src_z, src_level;
  MemoryType src_type;
  const void* src_host;
  DevicePtr src_device;
  Array src_array;
  void* src_reserved;
  std::size_t src_pitch, src_height;
  std::size_t dst_x, dst_y, dst_z, dst_level;
  MemoryType dst_type;
  void* dst_host;
  DevicePtr dst_device;
  Array dst_array;
  void* dst_reserved;
  std::size_t dst_pitch, dst_height;
  std::size_t width, height, depth;
};
static_assert(sizeof(Memcpy3D) == 200);

// The descriptors of cuMemcpy2D and cuMemcpy3D, which later versions (_v2) widened.
struct Memcpy2DV1 {
  unsigned src_x, src_y;
  MemoryType src_type;
  const void* src_host;
  DevicePtrV1 src_device;
  Array src_array;
  unsigned src_pitch;
  unsigned dst_x, dst_y;
  MemoryType dst_type;
  void* dst_host;
  DevicePtrV1 dst_device;
  Array dst_array;
  unsigned dst_pitch;
  unsigned width, height;
};
static_assert(sizeof(Memcpy2DV1) == 96);

struct Memcpy3DV1 {
  unsigned src_x, src_y, src_z, src_level;
  MemoryType src_type;
  const void* src_host;
  DevicePtrV1 src_device;
  Array src_array;
  void* src_reserved;
  unsigned src_pitch, src_height;
  unsigned dst_x, dst_y, dst_z, dst_level;
  MemoryType dst_type;
  void* dst_host;
  DevicePtrV1 dst_device;
  Array dst_array;
  void* dst_reserved;
  unsigned dst_pitch, dst_height;
  unsigned width, height, depth;
};
static_assert(sizeof(Memcpy3DV1) == 144);

// One side of a copy in a batch.
struct BatchSide3D {
  unsigned type;  // kBatchPointer, kBatchArray
  union {
    struct {
      DevicePtr pointer;
      std::size_t row_length, layer_height;  // in elements; 0: without gaps
      int location[2];
    } linear;
    struct {
      Array array;
      std::size_t x, y, z;
    } array_position;
  };
};
static_assert(sizeof(BatchSide3D) == 40);
// CUmemcpy3DOperandType
inline constexpr unsigned kBatchPointer = 1, kBatchArray = 2;

// A copy of cuMemcpy3DBatchAsync. The extent is in elements if a side is an array, else in bytes.
struct BatchCopy3D {
  BatchSide3D from, to;
  std::size_t width, height, depth;
  unsigned order, flags;
};
static_assert(sizeof(BatchCopy3D) == 112);

// A buffer of cuMemBatchDecompressAsync.
struct DecompressParameters {
  std::size_t from_bytes, to_bytes;
  unsigned* written_bytes;
  const void* from;
  void* to;
  unsigned algorithm;
  unsigned char reserved[20];
};
static_assert(sizeof(DecompressParameters) == 64);

// CUarray_format, without image and video formats.
inline constexpr unsigned kFormatUint8 = 0x01, kFormatUint16 = 0x02, kFormatUint32 = 0x03,
                          kFormatInt8 = 0x08, kFormatInt16 = 0x09, kFormatInt32 = 0x0a,
                          kFormatHalf = 0x10, kFormatFloat = 0x20;
// CUDA_ARRAY3D_* flags
inline constexpr unsigned kArrayLayered = 0x01, kArraySurface = 0x02, kArrayCubemap = 0x04,
                          kArraySparse = 0x40, kArrayDeferredMapping = 0x80;

// Extents are in elements, and 0 for a dimension that the array does not have.
struct ArrayDescriptor {
  std::size_t width, height;
  unsigned format, channels;
};
static_assert(sizeof(ArrayDescriptor) == 24);

struct Array3DDescriptor {
  std::size_t width, height, depth;  // depth of a layered array: its layers
  unsigned format, channels, flags;
};
static_assert(sizeof(Array3DDescriptor) == 40);

// The descriptors of cuArrayCreate and cuArray3DCreate, which later versions (_v2) widened.
struct ArrayDescriptorV1 {
  unsigned width, height, format, channels;
};
struct Array3DDescriptorV1 {
  unsigned width, height, depth, format, channels, flags;
};

// CUresourcetype
enum class ResourceType : unsigned { kArray = 0, kMipmappedArray = 1, kLinear = 2, kPitched = 3 };

// The memory of a texture or surface. `type` selects the member of the union.
struct ResourceDescriptor {
  ResourceType type;
  union {
    Array array;
    MipmappedArray mipmap;
    struct {
      DevicePtr pointer;
      unsigned format, channels;
      std::size_t bytes;
    } linear;
    struct {
      DevicePtr pointer;
      unsigned format, channels;
      std::size_t width, height, pitch;  // pitch in bytes
    } pitched;
    int reserved[32];
  };
  unsigned flags;
};
static_assert(sizeof(ResourceDescriptor) == 144);

struct TextureDescriptor {
  unsigned address_mode[3], filter_mode, flags, max_anisotropy, mipmap_filter_mode;
  float mipmap_level_bias, min_mipmap_level, max_mipmap_level, border_color[4];
  int reserved[12];
};
static_assert(sizeof(TextureDescriptor) == 104);

struct ResourceViewDescriptor {
  unsigned format;
  std::size_t width, height, depth;
  unsigned first_level, last_level, first_layer, last_layer, reserved[16];
};
static_assert(sizeof(ResourceViewDescriptor) == 112);

using Texture = unsigned long long;
using Surface = unsigned long long;

struct MemLocation {
  unsigned type;  // 1: device
  int id;
};

// CUmemLocationType
inline constexpr unsigned kLocationDevice = 1, kLocationHost = 2, kLocationHostNumaCurrent = 4;
// CUmemAllocationHandleType
inline constexpr unsigned kShareByFileDescriptor = 1;

// Properties of the memory that cuMemCreate allocates. It has no address until it is mapped.
using PhysicalMemory = unsigned long long;

struct PhysicalMemoryProperties {
  unsigned type;  // 1: pinned
  unsigned handle_types;
  MemLocation location;
  void* win32_meta_data;
  unsigned char compression, gpu_direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(PhysicalMemoryProperties) == 32);

// CUmemAccess_flags
inline constexpr unsigned kAccessNone = 0, kAccessRead = 1, kAccessReadWrite = 3;

struct MemAccess {
  MemLocation location;
  unsigned flags;
};
static_assert(sizeof(MemAccess) == 12);

// A handle that programs pass to other processes by any means. Functions cuIpc* take it by value,
// functions of memory pools by address.
struct IpcMemHandle {
  char reserved[64];
};

struct IpcEventHandle {
  char reserved[64];
};

// CUipcMem_flags: the only flag, which is required.
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;

struct MemPoolProperties {
  unsigned alloc_type, handle_types;
  MemLocation location;
  void* win32_security;
  std::size_t max_size;
  unsigned char reserved[56];
};
static_assert(sizeof(MemPoolProperties) == 88);

// Items of cuLaunchKernel's `extra`, which passes all launch parameters in one buffer.
inline void* const kLaunchParamEnd = nullptr;
inline constexpr std::uintptr_t kLaunchParamBuffer = 1;
inline constexpr std::uintptr_t kLaunchParamSize = 2;

using HostFunction = void (*)(void*);
using StreamCallback = void (*)(Stream, Result, void*);
using OccupancySize = std::size_t (*)(int);

// CUgraphNodeType
enum class GraphNodeType : int {
  kKernel = 0,
  kMemcpy = 1,
  kMemset = 2,
  kHost = 3,
  kGraph = 4,
  kEmpty = 5,
  kWaitEvent = 6,
  kEventRecord = 7,
  kMemAlloc = 10,
  kMemFree = 11,
  kConditional = 13,
};

// cuGraphAddKernelNode reads only the first 56 bytes, cuGraphAddKernelNode_v2 all.
struct KernelNodeParameters {
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** parameters;
  void** extra;
  Kernel kernel;
  Context context;
};
static_assert(sizeof(KernelNodeParameters) == 72);

struct MemsetNodeParameters {
  DevicePtr to;
  std::size_t pitch;
  unsigned value, element_bytes;
  std::size_t width, height;
};
static_assert(sizeof(MemsetNodeParameters) == 40);

struct HostNodeParameters {
  HostFunction function;
  void* data;
};

struct MemcpyNodeParameters {
  int flags, reserved;
  Context context;
  Memcpy3D copy;
};

struct MemAllocNodeParameters {
  MemPoolProperties pool;
  const MemAccess* access;
  std::size_t access_count;
  std::size_t bytes;
  DevicePtr pointer;  // out
};
static_assert(sizeof(MemAllocNodeParameters) == 120);

// CUgraphConditionalNodeType. kIf runs the first body if the condition is not 0, else the second
// body, if any. kWhile repeats its body while the condition is not 0. kSwitch runs the body whose
// index is the condition.
enum class ConditionalType : int { kIf = 0, kWhile = 1, kSwitch = 2 };
using ConditionalHandle = std::uint64_t;
// Flag of cuGraphConditionalHandleCreate: each launch begins with the default value.
inline constexpr unsigned kAssignDefault = 1;

struct ConditionalNodeParameters {
  ConditionalHandle handle;
  ConditionalType type;
  unsigned size;  // number of bodies
  Graph* bodies;  // out: graphs of the driver, empty at first; valid as long as the node
  Context context;
};
static_assert(sizeof(ConditionalNodeParameters) == 32);

// Parameters of node types that Tessera does not read.
struct SemaphoresWaitNodeParameters;
struct MemOpsNodeParameters;

// Parameters of a node of any type.
struct GraphNodeParameters {
  GraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    KernelNodeParameters kernel;
    MemcpyNodeParameters memcpy;
    MemsetNodeParameters memset;  // followed by a context
    HostNodeParameters host;
    Graph graph;
    Event event;  // for record nodes and wait nodes
    MemAllocNodeParameters alloc;
    DevicePtr free;
    ConditionalNodeParameters conditional;
  };
  long long reserved2;
};
static_assert(sizeof(GraphNodeParameters) == 256);

// CUgraphEdgeData. All zero: the second node starts after the end of the first node.
struct GraphEdge {
  unsigned char from_port, to_port, type, reserved[5];
};
static_assert(sizeof(GraphEdge) == 8);

// CUgraphExecUpdateResult
inline constexpr int kUpdateSuccess = 0, kUpdateTopologyChanged = 2, kUpdateNodeTypeChanged = 3,
                     kUpdateParametersChanged = 5, kUpdateNotSupported = 6;
// Flags of cuEventRecordWithFlags and cuStreamWaitEvent: in a capture, the event becomes a node.
inline constexpr unsigned kEventExternal = 1;

// CUgraphMem_attribute
inline constexpr int kGraphMemUsed = 0, kGraphMemUsedHigh = 1, kGraphMemReserved = 2,
                     kGraphMemReservedHigh = 3;
// CUgraphInstantiate_flags
inline constexpr unsigned kInstantiateAutoFree = 1, kInstantiateUpload = 2;

// CUgraphInstantiateResult
inline constexpr int kInstantiateSuccess = 0, kInstantiateError = 1,
                     kInstantiateOperationNotSupported = 3, kInstantiateHandleUnused = 5;

struct GraphInstantiateParameters {
  std::uint64_t flags;
  Stream upload_stream;
  GraphNode error_node;
  int result;
};
static_assert(sizeof(GraphInstantiateParameters) == 32);

struct GraphUpdateResult {
  int result;  // kUpdateSuccess, or the difference that prevents the update
  GraphNode error_node, error_from_node;
};
static_assert(sizeof(GraphUpdateResult) == 24);

extern "C" {
#define CUDA_FUNCTION(name, parameters) Result name parameters;
#include "api/cuda_functions.inc"
#undef CUDA_FUNCTION
}

// fn::<name> is the type of a pointer to the function <name> of the library, for dlsym.
namespace fn {
#define CUDA_FUNCTION(name, parameters) using name = Result(*) parameters;
#include "api/cuda_functions.inc"
#undef CUDA_FUNCTION
}  // namespace fn

}  // namespace tessera::cuda
