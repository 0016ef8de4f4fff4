// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/units.h"

namespace triptych {
namespace {

constexpr int64_t kPollNs = 100'000'000;  // how late an interrupt or its end may be noticed
constexpr size_t kTailBytes = 2000;

// Groups of the children that run, for a handler that ends the program; 0 = a free place.
constexpr size_t kMaxGroups = 256;  // more than the stacks of any spec
std::array<std::atomic<pid_t>, kMaxGroups> g_groups;
static_assert(std::atomic<pid_t>::is_always_lock_free, "read by a signal handler");

void enlist_group(pid_t pid) {
  for (std::atomic<pid_t>& group : g_groups) {
    pid_t free = 0;
    if (group.compare_exchange_strong(free, pid)) return;
  }
}

/// Before the leader is reaped: until then its number is nobody else's.
void delist_group(pid_t pid) {
  for (std::atomic<pid_t>& group : g_groups) {
    pid_t expected = pid;
    if (group.compare_exchange_strong(expected, 0)) return;
  }
}

/// A descriptor that is closed on every way out unless it is released.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Unexpected system_error(const std::string& what) {
  return fail(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

/// A file that no name leads to: it is gone when the last descriptor is.
Result<int> nameless_file() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string name = (folder / "triptych-stderr-XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC | O_APPEND);
  if (fd < 0) return system_error("cannot make a file in " + folder.string());
  ::unlink(name.c_str());
  return fd;
}

/// What the child does between fork and exec: calls that are safe there, and nothing else.
struct Launch {
  std::vector<char*> argv;  // null-terminated
  const char* directory;    // or null
  int in;
  int out;
  int err;
  int report;  // errno of what went wrong goes here; closed by exec
  pid_t parent;

  [[noreturn]] void give_up(char step) const {
    const std::array<int, 2> message = {step, errno};
    [[maybe_unused]] const ssize_t written = ::write(report, message.data(), sizeof(message));
    ::_exit(127);
  }

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it ended before the line above
    // Until its group is enlisted it starts nothing, not even itself: whoever kills the groups then
    // misses no worker.
    char go = 0;
    while (::read(in, &go, 1) < 0) {
      if (errno != EINTR) give_up('g');
    }
    // Ignored signals stay ignored over exec, and the child has not asked for that.
    ::signal(SIGXFSZ, SIG_DFL);
    ::signal(SIGPIPE, SIG_DFL);
    if (::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
        ::dup2(err, STDERR_FILENO) < 0) {
      give_up('d');
    }
    if (directory != nullptr && ::chdir(directory) != 0) give_up('c');
    ::execvp(argv[0], argv.data());
    give_up('e');
  }
};

Status launch_error(const std::array<int, 2>& message, const ChildCommand& command) {
  const bool missing = message[1] == ENOENT || message[1] == ENOTDIR;
  const std::string reason = std::strerror(message[1]);
  const ErrorCode code = missing ? ErrorCode::kNotFound : ErrorCode::kIo;
  if (message[0] == 'c') {
    return fail(code, "cannot enter its folder: " + reason, command.working_directory.string());
  }
  return fail(code, "cannot be started: " + reason, command.argv.front());
}

}  // namespace

void kill_child_groups() noexcept {
  for (const std::atomic<pid_t>& group : g_groups) {
    if (const pid_t pid = group.load(); pid > 0) ::kill(-pid, SIGKILL);
  }
}

Result<ChildProcess> ChildProcess::start(const ChildCommand& command) {
  TRIPTYCH_CHECK(!command.argv.empty(), "a command has a program");
  std::array<int, 2> in = {-1, -1};
  std::array<int, 2> out = {-1, -1};
  std::array<int, 2> report = {-1, -1};
  // A socket, because writing to one whose peer is gone can be made an error and not a signal.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) {
    return system_error("socketpair");
  }
  Fd in_parent(in[0]);
  const Fd in_child(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return system_error("pipe");
  Fd out_parent(out[0]);
  const Fd out_child(out[1]);
  if (::pipe2(report.data(), O_CLOEXEC) != 0) return system_error("pipe");
  const Fd report_parent(report[0]);
  Fd report_child(report[1]);
  TRIPTYCH_TRY(const int err, nameless_file());
  Fd err_file(err);

  std::vector<std::string> argv = command.argv;
  const std::string directory = command.working_directory.string();
  Launch launch{.argv = {},
                .directory = directory.empty() ? nullptr : directory.c_str(),
                .in = in_child.get(),
                .out = out_child.get(),
                .err = err_file.get(),
                .report = report_child.get(),
                .parent = ::getpid()};
  for (std::string& argument : argv) launch.argv.push_back(argument.data());
  launch.argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork");
  if (pid == 0) launch.run();
  ::setpgid(pid, pid);  // whoever comes first; the group must exist before it is signalled
  enlist_group(pid);
  static_cast<void>(::send(in_parent.get(), "g", 1, MSG_NOSIGNAL));  // Launch::run() waits for it
  report_child.reset(-1);

  ChildProcess child;
  child.command_ = command;
  child.pid_ = pid;
  child.in_ = in_parent.release();
  child.out_ = out_parent.release();
  child.err_ = err_file.release();
  std::array<int, 2> message = {0, 0};
  ssize_t got = 0;
  do {
    got = ::read(report_parent.get(), message.data(), sizeof(message));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(message))) {
    TRIPTYCH_RETURN_IF_ERROR(launch_error(message, command));
  }
  ::fcntl(child.out_, F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : command_(std::move(other.command_)),
      pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      out_ended_(other.out_ended_),
      gone_(other.gone_),
      next_look_ns_(other.next_look_ns_),
      end_text_(std::move(other.end_text_)),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      scanned_(other.scanned_),
      lines_read_(other.lines_read_) {}

ChildProcess::~ChildProcess() {
  stop();
  for (const int fd : {out_, err_}) {
    if (fd >= 0) ::close(fd);
  }
}

Status ChildProcess::wait_ready(short in_events, short& in_ready, short& out_ready,
                                int64_t deadline_ns, const std::atomic<bool>* interrupted) {
  while (true) {
    if (interrupted != nullptr && interrupted->load()) return fail(ErrorCode::kIo, "interrupted");
    TRIPTYCH_RETURN_IF_ERROR(notice_end());
    if (gone_) {
      in_ready = 0;
      out_ready = 0;
      return {};
    }
    const int64_t left_ns = deadline_ns - now_ns();
    if (left_ns <= 0) return fail(ErrorCode::kIo, "no answer in time");
    std::array<pollfd, 2> fds = {
        {{in_events != 0 ? in_ : -1, in_events, 0}, {out_ended_ ? -1 : out_, POLLIN, 0}}};
    // Rounded up, so that the last millisecond is slept and not spun.
    const auto wait_ms = static_cast<int>((std::min(left_ns, kPollNs) + 999'999) / 1'000'000);
    const int ready = ::poll(fds.data(), fds.size(), wait_ms);
    if (ready < 0 && errno != EINTR) return system_error("poll");
    in_ready = fds[0].revents;
    out_ready = fds[1].revents;
    if (ready > 0) return {};
  }
}

Status ChildProcess::notice_end() {
  if (gone_ || now_ns() < next_look_ns_) return {};
  next_look_ns_ = now_ns() + kPollNs;
  if (!wait_end(0)) return {};
  gone_ = true;
  // All that it wrote is in the pipe by now; what comes later is from others that hold the pipe.
  int in_pipe = 0;
  if (::ioctl(out_, FIONREAD, &in_pipe) != 0) return system_error("ioctl");
  const size_t whole = buffer_.size() + static_cast<size_t>(in_pipe);
  while (!out_ended_ && buffer_.size() < whole) TRIPTYCH_RETURN_IF_ERROR(fill_buffer());
  out_ended_ = true;
  return {};
}

Status ChildProcess::fill_buffer() {
  constexpr size_t kChunk = size_t{1} << 16;
  const size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  const ssize_t got = ::read(out_, buffer_.data() + size, kChunk);
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && errno != EINTR && errno != EAGAIN) return system_error("read");
  if (got == 0) out_ended_ = true;
  return {};
}

Status ChildProcess::write_line(std::string_view text, int64_t deadline_ns,
                                const std::atomic<bool>* interrupted) {
  std::string line(text);
  line += '\n';
  for (size_t sent = 0; sent < line.size();) {
    short in_ready = 0;
    short out_ready = 0;
    TRIPTYCH_RETURN_IF_ERROR(wait_ready(POLLOUT, in_ready, out_ready, deadline_ns, interrupted));
    if (gone_) return fail(ErrorCode::kIo, "it closed its standard input");
    if (out_ready != 0 && buffer_.size() < kMaxLine) TRIPTYCH_RETURN_IF_ERROR(fill_buffer());
    if (in_ready == 0) continue;
    const ssize_t wrote =
        ::send(in_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote >= 0) {
      sent += static_cast<size_t>(wrote);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return fail(ErrorCode::kIo, "it closed its standard input");
    } else if (errno != EINTR && errno != EAGAIN) {
      return system_error("send");
    }
  }
  return {};
}

Result<std::optional<std::string>> ChildProcess::read_line(int64_t deadline_ns,
                                                           const std::atomic<bool>* interrupted) {
  while (true) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end != std::string::npos || (out_ended_ && begin_ < buffer_.size())) {
      const size_t stop = std::min(end, buffer_.size());
      std::string line = buffer_.substr(begin_, stop - begin_);
      begin_ = std::min(stop + 1, buffer_.size());
      scanned_ = begin_;
      ++lines_read_;
      return std::optional<std::string>(std::move(line));
    }
    if (out_ended_) return std::optional<std::string>();
    buffer_.erase(0, begin_);  // no whole line is left, so little is moved
    begin_ = 0;
    scanned_ = buffer_.size();
    if (buffer_.size() > kMaxLine) {
      return fail(ErrorCode::kCorrupt, str_format("a line of more than %zu bytes", kMaxLine));
    }
    short in_ready = 0;
    short out_ready = 0;
    TRIPTYCH_RETURN_IF_ERROR(wait_ready(0, in_ready, out_ready, deadline_ns, interrupted));
    if (out_ready != 0) TRIPTYCH_RETURN_IF_ERROR(fill_buffer());
  }
}

bool ChildProcess::wait_end(int64_t wait_ns) {
  const int64_t deadline_ns = now_ns() + wait_ns;
  constexpr auto kStep = std::chrono::milliseconds(2);
  while (pid_ > 0 && !end_text_) {
    siginfo_t info = {};
    const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result == 0 && info.si_pid == pid_) {
      const bool exited = info.si_code == CLD_EXITED;
      end_text_ = exited
                      ? str_format("exit code %d", info.si_status)
                      : str_format("signal %d (%s)", info.si_status, ::strsignal(info.si_status));
    } else if (result != 0 && errno != EINTR) {
      end_text_ = "";  // somebody else reaped it; nothing more is known
    } else if (now_ns() >= deadline_ns) {
      return false;
    } else {
      std::this_thread::sleep_for(kStep);
    }
  }
  return true;
}

void ChildProcess::signal_group(int signal) const { ::kill(-pid_, signal); }

void ChildProcess::stop() {
  if (pid_ <= 0) return;
  if (in_ >= 0) ::close(std::exchange(in_, -1));
  if (!wait_end(command_.close_grace_ns)) {
    signal_group(SIGTERM);
    static_cast<void>(wait_end(command_.term_grace_ns));
  }
  kill();
}

void ChildProcess::kill() {
  if (pid_ <= 0) return;
  // Also when the leader has ended: what it started has no other end.
  signal_group(SIGKILL);
  constexpr int64_t kDeathNs = 10'000'000'000;  // a process in a driver call may take seconds
  static_cast<void>(wait_end(kDeathNs));
  delist_group(pid_);
  static_cast<void>(::waitpid(pid_, nullptr, WNOHANG));
  if (in_ >= 0) ::close(std::exchange(in_, -1));
  pid_ = -1;
}

std::string ChildProcess::end_text(int64_t wait_ns) {
  static_cast<void>(wait_end(wait_ns));
  return end_text_.value_or("");
}

std::string ChildProcess::error_tail() const {
  const off_t size = ::lseek(err_, 0, SEEK_END);
  if (size <= 0) return "";
  const auto wanted = std::min<off_t>(size, static_cast<off_t>(kTailBytes));
  std::string text(static_cast<size_t>(wanted), '\0');
  const ssize_t got = ::pread(err_, text.data(), text.size(), size - wanted);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (wanted < size) text.erase(0, text.find('\n') + 1);  // a cut first line, if there are more
  for (char& c : text) {  // it goes into a database and onto a terminal
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) c = '?';
  }
  if (!is_valid_utf8(text)) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; },
        '?');
  }
  return std::string(trim(text));
}

}  // namespace triptych
