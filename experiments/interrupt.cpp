// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "engine/child_process.h"

namespace triptych {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// What the handler reads. The texts are written before it is installed and after it is gone.
std::atomic<bool> g_interrupted = false;
std::atomic<bool> g_guarded = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");
std::string g_first;
std::string g_second;
std::array<struct sigaction, kSignals.size()> g_old;

void say(const std::string& text) {
  // Nothing to be done where this cannot be written: the terminal may be gone.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

/// Ends the program by `signal`, so that whoever waits for it knows why.
void end_program(int signal) {
  kill_child_groups();
  say(g_second);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // comes when the handler returns
}

void handle(int signal) {
  const int error = errno;
  if (signal == SIGQUIT || g_interrupted.exchange(true)) {
    end_program(signal);
  } else {
    say(g_first);
  }
  errno = error;
}

}  // namespace

InterruptGuard::InterruptGuard(std::string first, std::string second) {
  TRIPTYCH_CHECK(!g_guarded.exchange(true), "one InterruptGuard at a time");
  g_interrupted = false;
  g_first = std::move(first);
  g_second = std::move(second);
  struct sigaction action = {};
  action.sa_handler = handle;
  // One after the other: a second signal ends the program when the first one has spoken.
  for (const int signal : kSignals) ::sigaddset(&action.sa_mask, signal);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &g_old[i]);
    const bool ignored = kSignals[i] == SIGHUP && g_old[i].sa_handler == SIG_IGN;
    if (!ignored) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &g_old[i], nullptr);
  g_guarded = false;
}

const std::atomic<bool>& InterruptGuard::interrupted() { return g_interrupted; }

}  // namespace triptych
