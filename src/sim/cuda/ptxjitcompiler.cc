// SPDX-License-Identifier: Apache-2.0
// Drivers ship libnvidia-ptxjitcompiler.so beside libcuda, and container runtimes carry it along.
// Here libcuda reads PTX itself, so this library holds nothing but its name.
