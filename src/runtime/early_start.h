// SPDX-License-Identifier: Apache-2.0
// The program's entry point. Each exec probe, state, kill and delete of a node only passes through
// to runc. Starting the C library would cost ten times as much: relocations, locales, and forty
// CPUID instructions, each of which exits a virtual machine. So commands that only pass through are
// executed before the C library starts, with system calls alone. For all other commands
// TesseraEarlyStart returns, and main() decides by ParseCommandLine, LoadOptions and
// FindLowLevelRuntime. Only static programs that need no relocation are linked with this entry
// point; other programs start with main().
//
// A command passes through if no argument is a verb that Tessera handles, the only argument is not
// a request for help, the configuration names no runtimes, and, for exec with a process file, the
// bundle has no GPUs.
#pragma once

extern "C" {

// The entry point. Jumps to the entry point of the C library if TesseraEarlyStart returns.
void tessera_start();

// `stack` is the initial stack from the kernel: argc, argv, null, environment, null. Returns if
// the command must go through main().
void TesseraEarlyStart(long* stack);
}
