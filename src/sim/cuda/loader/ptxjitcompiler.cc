// SPDX-License-Identifier: Apache-2.0
// Drivers ship libnvidia-ptxjitcompiler.so with libcuda, and container runtimes mount it. Here
// libcuda reads PTX itself, so this library is empty.
