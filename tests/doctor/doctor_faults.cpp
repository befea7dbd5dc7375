// A library to preload that simulates faults of a cluster, chosen by these environment variables:
//   DOCTOR_FAULT_NODES=1             each rank seems to be on its own node, "node0", "node1", ...
//   DOCTOR_FAULT_START=R             MPI does not start on rank R
//   DOCTOR_FAULT_LOST=A:B            messages between ranks A and B never arrive
//   DOCTOR_FAULT_CONNECT=R           rank R has no route to any other host
//   DOCTOR_FAULT_LOCKS=1             the file system has no locks
//   DOCTOR_FAULT_CLOCK=R:SECONDS     rank R's clock is ahead
//   DOCTOR_FAULT_SILENT=R:PATH       rank R hangs when it opens the directory PATH
//   DOCTOR_FAULT_FADE=A:B:RUNS       A and B exchange RUNS series of large messages, slowly, then
//                                    no more
//   DOCTOR_FAULT_SLOW=A:B:RUNS       A and B exchange RUNS series of large messages slowly
//   DOCTOR_FAULT_READS=R:RUNS        rank R reads a shard slowly, RUNS times
//   DOCTOR_FAULT_RENAMES=RUNS        RUNS of the doctor's renames are slow
//   DOCTOR_FAULT_APART=R             rank R does not see the doctor's files of other ranks
//   DOCTOR_FAULT_THREADS=R           rank R cannot create threads after MPI has started
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <thread>

namespace {

/// The variable's value at the start of the process. All threads call this, possibly while one of
/// them changes the environment.
const char* variable(const std::string& name) {
  static const auto& all = []() -> const std::map<std::string, std::string>& {
    auto& found = *new std::map<std::string, std::string>;  // for threads that outlive main
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::size_t equals = text.find('=');
      if (equals != std::string::npos) found[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return found;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second.c_str();
}

__attribute__((constructor)) void read_variables() {
  variable("");
}

const char* fault(const char* name) {
  return variable(std::string("DOCTOR_FAULT_") + name);
}

/// The rank that the launcher assigned, because MPI may not have started.
int my_rank() {
  const char* rank = variable("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

bool is_mine(const char* name) {
  const char* rank = fault(name);
  return rank != nullptr && std::atoi(rank) == my_rank();
}

/// Whether the fault concerns messages between this rank and `other`.
bool is_between(const char* name, int other) {
  const char* pair = fault(name);
  int one = -1;
  int two = -1;
  if (pair == nullptr || std::sscanf(pair, "%d:%d", &one, &two) != 2) return false;
  return (my_rank() == one && other == two) || (my_rank() == two && other == one);
}

constexpr int large = 1 << 20;

/// Delays large messages; whether the message is lost.
bool has_faded(int other, int bytes) {
  constexpr auto delay = std::chrono::milliseconds(20);
  static int runs = 0;
  static bool was_large = false;
  const bool fades = is_between("FADE", other);
  if (!fades && !is_between("SLOW", other)) return false;
  const bool is_large = bytes >= large;
  if (is_large && !was_large) ++runs;
  was_large = is_large;
  int slow = 0;
  std::sscanf(fault(fades ? "FADE" : "SLOW"), "%*d:%*d:%d", &slow);
  if (!is_large || (!fades && runs > slow)) return false;
  std::this_thread::sleep_for(delay);
  return runs > slow;
}

int reads = 0;  ///< that the doctor has begun

bool reads_slowly(std::size_t bytes) {
  int rank = -1;
  int slow = 0;
  return bytes == large && fault("READS") != nullptr &&
         std::sscanf(fault("READS"), "%d:%d", &rank, &slow) == 2 && rank == my_rank() &&
         reads <= slow;
}

bool is_loopback(const struct sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

void hang_at(const char* path) {
  const char* silent = fault("SILENT");
  if (silent == nullptr || path == nullptr) return;
  const char* colon = std::strchr(silent, ':');
  if (colon == nullptr || std::atoi(silent) != my_rank() || std::strcmp(path, colon + 1) != 0) {
    return;
  }
  for (;;) ::pause();
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (is_mine("START")) {
    for (;;) ::pause();
  }
  return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Get_processor_name(char* name, int* length) {
  if (fault("NODES") == nullptr) return PMPI_Get_processor_name(name, length);
  *length = std::snprintf(name, MPI_MAX_PROCESSOR_NAME, "node%d", my_rank());
  return MPI_SUCCESS;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!is_between("LOST", to) && !has_faded(to, count))
    return PMPI_Isend(data, count, type, to, tag, comm, request);
  // Never completes, because no rank sends a matching message.
  static char nowhere[1 << 21];
  constexpr int unused_tag = 32000;
  return PMPI_Irecv(nowhere, 1, MPI_BYTE, to, unused_tag, comm, request);
}

int connect(int socket, const struct sockaddr* address, socklen_t size) {
  const bool is_ip = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  if (is_mine("CONNECT") && is_ip && !is_loopback(address)) {
    errno = EHOSTUNREACH;
    return -1;
  }
  return next<decltype(::connect)>("connect")(socket, address, size);
}

int stat(const char* path, struct stat* status) noexcept {
  if (is_mine("APART") && std::strstr(path, "/.lockstep-doctor-") != nullptr) {
    errno = ENOENT;
    return -1;
  }
  return next<int(const char*, struct stat*)>("stat")(path, status);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  int has_started = 0;
  if (is_mine("THREADS") && PMPI_Initialized(&has_started) == MPI_SUCCESS && has_started != 0) {
    return EAGAIN;
  }
  return next<decltype(::pthread_create)>("pthread_create")(thread, attributes, start, argument);
}

int posix_fadvise(int file, off_t offset, off_t size, int advice) noexcept {
  if (advice == POSIX_FADV_DONTNEED) ++reads;
  return next<int(int, off_t, off_t, int)>("posix_fadvise")(file, offset, size, advice);
}

ssize_t pread(int file, void* data, std::size_t bytes, off_t offset) {
  if (reads_slowly(bytes)) std::this_thread::sleep_for(std::chrono::milliseconds(150));
  return next<decltype(::pread)>("pread")(file, data, bytes, offset);
}

int renameat(int from, const char* old, int to, const char* now) noexcept {
  static int renames = 0;
  const char* slow = fault("RENAMES");
  if (slow != nullptr && std::strcmp(now, "proof") == 0 && ++renames <= std::atoi(slow)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
  return next<int(int, const char*, int, const char*)>("renameat")(from, old, to, now);
}

int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (command == F_OFD_SETLK && fault("LOCKS") != nullptr) {
    errno = ENOLCK;
    return -1;
  }
  return next<int(int, int, ...)>("fcntl")(file, command, argument);
}

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  const int code = next<int(clockid_t, struct timespec*)>("clock_gettime")(clock, now);
  const char* off = fault("CLOCK");
  int rank = 0;
  int seconds = 0;
  if (clock == CLOCK_REALTIME && off != nullptr &&
      std::sscanf(off, "%d:%d", &rank, &seconds) == 2 && rank == my_rank()) {
    now->tv_sec += seconds;
  }
  return code;
}

int openat(int directory, const char* path, int flags, ...) {
  hang_at(path);
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0U;
  va_end(rest);
  return next<int(int, const char*, int, ...)>("openat")(directory, path, flags, mode);
}

int open(const char* path, int flags, ...) {
  hang_at(path);
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0U;
  va_end(rest);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

}  // extern "C"
