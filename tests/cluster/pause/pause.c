// SPDX-License-Identifier: Apache-2.0
// The process that holds a pod's namespaces: sleeps, reaps orphans, ends on SIGINT or SIGTERM.
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number) { _exit(signal_number == 0); }

static void reap(int signal_number) {
  (void)signal_number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction ending = {.sa_handler = end};
  struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &ending, NULL) < 0 || sigaction(SIGTERM, &ending, NULL) < 0 ||
      sigaction(SIGCHLD, &reaping, NULL) < 0) {
    return 1;
  }
  for (;;) pause();
}
