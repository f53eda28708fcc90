// SPDX-License-Identifier: Apache-2.0
// Where the program begins. Each exec probe, state, kill and delete of a node passes through it
// only to become runc, and setting up the C library is ten times the work of that: relocations,
// locales, and forty CPUID instructions, each of which leaves a virtual machine. So the plain cases
// are done before it, with the kernel alone; whatever is not plain returns, and main() begins as
// ever and decides by the rules of ParseCommandLine, LoadOptions and FindLowLevelRuntime. Linked as
// the entry point of static programs that need no relocation; others start with main().
//
// Plain is: no word of the command line is a verb that is ours, makes a container or changes its
// limits, nor is the only one a wish for help; the configuration names no runtimes; and, for exec
// with a process file, the bundle was given no GPUs.
#pragma once

extern "C" {

// The entry point. Jumps to the C library's where TesseraEarlyStart returns.
void tessera_start();

// `stack` is what the kernel gave: argc, argv, null, environment, null. Returns to go on as ever.
void TesseraEarlyStart(long* stack);
}
